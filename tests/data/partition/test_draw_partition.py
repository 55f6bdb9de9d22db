"""Every invariant of the partitions, on drawn labels."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedscope.data.loading.datasets import Split
from fedscope.data.partition.draw_partition import FRESH, KINDS, Division, divide, partition
from fedscope.data.partition.longtail import longtail_counts
from fedscope.data.partition.regular import Rows
from fedscope.data.sets.dataset_catalogue import load
from fedscope.errors import UserError

LABELS = np.repeat(np.arange(10), 60)[np.random.default_rng(0).permutation(600)]
DOMAINS = np.arange(600) % 5
PARAMETERS: dict[str, Any] = {
    "alpha": 0.5, "phi": 0.5, "rho": 0.1, "shards": 2, "classes_per_client": 3,
}  # fmt: skip
ALIKE = ("iid", "iid_per_class", "iid_slices")

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
alphas = st.floats(0.3, 100)


def drawn(kind: str, seed: int = 0, labels: Rows = LABELS, **changed: Any) -> list[Rows]:
    fields: dict[str, Any] = {"clients": 5, **PARAMETERS, **changed}
    owners = np.arange(len(labels)) % max(fields["clients"], 1)
    return partition(Division(kind, **fields), labels, np.random.default_rng(seed), DOMAINS, owners)


def histograms(parts: list[Rows], labels: Rows = LABELS) -> np.ndarray:
    return np.stack([np.bincount(labels[rows], minlength=labels.max() + 1) for rows in parts])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FRESH and kind != "per_domain"])
@given(clients=st.integers(1, 20), alpha=alphas, seed=seeds)
@quick
def test_clients_are_disjoint_and_complete(kind: str, clients: int, alpha: float, seed: int) -> None:
    alpha += 5 * (kind == "quantity_skew")  # else no draw may have the ten samples for each client
    parts = drawn(kind, seed, clients=clients, alpha=alpha)
    rows = np.concatenate(parts)
    unheld = 600 - 60 * len(np.unique(LABELS[rows]))
    left_over = {
        "dirichlet_equal": 600 % clients, "dirichlet_in_turn": 600 % clients,
        "iid_per_class": 10 * (60 % clients), "fixed_classes": unheld,
    }  # fmt: skip
    assert len(parts) == clients
    assert all(part.dtype == np.int64 for part in parts)
    assert len(rows) == 600 - left_over.get(kind, 0)
    assert len(np.unique(rows)) == len(rows)
    assert (rows.min() >= 0, rows.max() < 600) == (True, True)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
@settings(max_examples=5, deadline=None)
def test_one_seed_is_one_partition(kind: str, seed: int) -> None:
    first, again, other = drawn(kind, seed), drawn(kind, seed), drawn(kind, seed + 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    same = all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert same == (kind in ("iid_per_class", "iid_slices", "per_domain", "own"))


@given(clients=st.integers(1, 6), alpha=st.floats(1, 100), seed=seeds, classes=st.integers(10, 30))
@quick
def test_balanced_sizes_are_bounded(clients: int, alpha: float, seed: int, classes: int) -> None:
    frequencies = np.random.default_rng(seed).dirichlet(np.full(classes, 2.0))
    labels = np.random.default_rng(seed).choice(classes, 400, p=frequencies)
    parts = drawn("dirichlet_balanced", seed, labels, clients=clients, alpha=alpha)
    assert min(map(len, parts)) >= 10
    counts = histograms(parts, labels)
    rounded_up = np.zeros(clients)
    rounded_up[-1] = classes  # the last client gets what the cuts' rounding leaves, even when it is full
    # any other was open before its last piece
    assert (counts.sum(1) < 400 / clients + counts.max(1) + rounded_up).all()


def test_a_draw_that_starves_a_client_is_discarded() -> None:  # about every second draw does
    sizes = [
        len(rows) for seed in range(20) for rows in drawn("dirichlet_balanced", seed, clients=40, alpha=3)
    ]
    assert min(sizes) == 10


@pytest.mark.parametrize("exhausted", ["redraw", "refill"])
@given(clients=st.integers(1, 50), alpha=st.floats(0.001, 100), seed=seeds)
@quick
def test_equal_sizes_are_equal(exhausted: str, clients: int, alpha: float, seed: int) -> None:
    parts = drawn("dirichlet_equal", seed, clients=clients, alpha=alpha, exhausted=exhausted)
    assert {len(part) for part in parts} == {600 // clients}


def test_shares_at_the_end_of_floating_point_are_drawn_from() -> None:
    parts = drawn("dirichlet_equal", 47, clients=35, alpha=0.001)  # some are subnormal
    assert {len(part) for part in parts} == {17}
    assert len(np.unique(np.concatenate(parts))) == 35 * 17


def test_two_shards_of_a_hundred_clients_are_two_digits() -> None:
    """McMahan et al. 2017, section 3: 60,000 digits in 200 shards of 300, two of them for each client."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = drawn("shards", labels=labels, clients=100, shards=2)
    counts = histograms(parts, labels)
    assert set(counts.flat) == {0, 300, 600}
    assert (counts.sum(1) == 600).all()
    same = np.mean((counts > 0).sum(1) == 1)  # two shards of one class: 19 of the other 199
    assert same == pytest.approx(19 / 199, abs=3 * (0.095 * 0.905 / 100) ** 0.5)
    by_class = np.argsort(labels, kind="stable").reshape(200, 300)
    shards = {tuple(shard) for shard in by_class.tolist()}
    assert {tuple(half.tolist()) for rows in parts for half in np.split(rows, 2)} == shards


@given(clients=st.integers(10, 40), shards=st.integers(1, 15), seed=seeds)
@quick
def test_a_shard_has_at_most_two_classes(clients: int, shards: int, seed: int) -> None:
    parts = drawn("shards", seed, clients=clients, shards=shards)
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= shards
    assert ((histograms(parts) > 0).sum(1) <= 2 * shards).all()  # none is longer than the 60 rows of a class


@given(clients=st.integers(1, 40), k=st.integers(1, 10), seed=seeds)
@quick
def test_a_client_has_so_many_classes_in_equal_parts(clients: int, k: int, seed: int) -> None:
    counts = histograms(drawn("fixed_classes", seed, clients=clients, classes_per_client=k))
    assert ((counts > 0).sum(1) == k).all()
    assert all(counts[client, client % 10] for client in range(clients))
    for column in counts.T:
        held = column[column > 0]
        assert held.size == 0 or (held.sum() == 60 and held.max() - held.min() <= 1)


def test_the_other_classes_are_drawn_uniformly() -> None:
    labels = np.repeat(np.arange(10), 4000)
    counts = histograms(drawn("fixed_classes", labels=labels, clients=2000, classes_per_client=3), labels)
    others = (counts > 0).sum(0) - 200  # besides the 200 clients whose own class it is
    assert abs(others - 400).max() < 5 * (1800 * 2 / 9 * 7 / 9) ** 0.5


@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_sizes_are_dirichlet_and_labels_are_not_skewed(alpha: float) -> None:
    """Var(q_k) = (N − 1)/(N²(Nα + 1)) of Dir(α, …, α); a part of a permutation has the classes of all."""
    labels = np.repeat(np.arange(10), 2000)
    found = [
        histograms(drawn("quantity_skew", seed, labels, clients=5, alpha=alpha), labels)
        for seed in range(200)
    ]
    sizes = np.array([counts.sum(1) for counts in found])
    assert (sizes.sum(1) == 20_000).all()
    assert (sizes / 20_000).var() == pytest.approx(4 / (25 * (5 * alpha + 1)), rel=4 * (2 / 800) ** 0.5)
    z = (np.array(found) - sizes[..., None] / 10) / np.sqrt(sizes[..., None] * 0.09)
    assert (z**2).mean() == pytest.approx(0.8, abs=0.03)  # hypergeometric: a fifth of the variance is gone


@pytest.mark.parametrize("kind", ["dirichlet_balanced", "dirichlet_equal", "dirichlet_in_turn"])
def test_alpha_is_the_concentration(kind: str) -> None:
    def spread(alpha: float) -> float:
        alpha *= 10 if kind == "dirichlet_in_turn" else 1  # of ten classes
        counts = [histograms(drawn(kind, seed, clients=6, alpha=alpha)) for seed in range(5)]
        return float(np.mean([(n / n.sum(1, keepdims=True)).std(0) for n in counts]))

    assert spread(0.1) > 1.5 * spread(1.0) > 1.5 * spread(1e6)


@given(seed=seeds)
@quick
def test_balanced_becomes_alike_as_alpha_grows(seed: int) -> None:
    # A client that holds n/N before the last class gets nothing of it: so not the last client's cut, but
    # every class before the last, is divided equally.
    counts = histograms(drawn("dirichlet_balanced", seed, clients=6, alpha=1e9))
    assert abs(counts[:, :9] - 10).max() <= 1


def test_equal_shares_are_multinomial_as_alpha_grows() -> None:
    labels = np.repeat(np.arange(10), 3000)
    counts = histograms(drawn("dirichlet_equal", labels=labels, clients=6, alpha=1e6), labels)
    assert abs(counts / 5000 - 0.1).max() < 5 * np.sqrt(0.1 * 0.9 / 5000)


def test_in_turn_has_a_tenth_of_alpha_for_each_of_ten_classes() -> None:
    """The files of Caldarola et al. 2022: 1.32 classes a client at α = 0.05, 4.78 at 1, 9.28 at 10."""
    labels = np.repeat(np.arange(10), 5000)
    for alpha, theirs in ((0.05, 1.32), (1, 4.78), (10, 9.28)):
        counts = histograms(drawn("dirichlet_in_turn", 1, labels, clients=100, alpha=alpha), labels)
        assert (counts.sum(1) == 500).all()
        assert (counts > 0).sum(1).mean() == pytest.approx(theirs, abs=0.8)
    tiny = histograms(drawn("dirichlet_in_turn", 1, clients=10, alpha=1e-9))  # the shares vanish
    assert ((tiny > 0).sum(1) == 1).all()
    rare = np.repeat(np.arange(2), [900, 100])  # p, not 1/C
    counts = histograms(drawn("dirichlet_in_turn", 1, rare, clients=10, alpha=1e6), rare)
    assert counts[:5, 1].mean() == pytest.approx(10, abs=5)


ASKED = np.random.default_rng(3).dirichlet(np.full(3, 1.0), size=600)  # the first that is drawn: q_k


def mean_square_deviation(sizes: Sequence[int], exhausted: str) -> float:
    """Return the mean of z² over 600 clients of 30 samples: 1 where they are multinomial draws from q_k."""
    labels = np.repeat(np.arange(3), sizes)
    parts = drawn("dirichlet_equal", 3, labels, clients=600, alpha=1.0, exhausted=exhausted)
    z = (histograms(parts, labels) - 30 * ASKED) / np.sqrt(30 * ASKED * (1 - ASKED))
    return float((z[(ASKED > 0.1) & (ASKED < 0.9)] ** 2).mean())


def test_clients_follow_their_shares_until_a_class_is_used_up() -> None:
    enough = [int(asked) + 150 for asked in 30 * ASKED.sum(0)]
    scarce = [1000, 6000, 11_000]
    assert mean_square_deviation(enough, "redraw") == pytest.approx(1, abs=0.1)
    assert mean_square_deviation(scarce, "refill") == pytest.approx(1, abs=0.1)
    assert mean_square_deviation(scarce, "redraw") > 2


@given(seed=seeds)
@quick
def test_refill_alone_repeats_rows(seed: int) -> None:
    labels = np.repeat(np.arange(2), [590, 10])
    parts = drawn("dirichlet_equal", seed, labels, clients=4, alpha=1e4, exhausted="refill")
    counts = histograms(parts, labels)
    assert counts[:, 1].sum() > 10  # each asks for about 75 of the ten samples
    taken = np.bincount(np.concatenate(parts)[labels[np.concatenate(parts)] == 1], minlength=600)[590:]
    assert taken.max() - taken.min() <= 1  # a class is refilled when all of it is used, not before


@given(clients=st.integers(1, 60))
@quick
def test_iid_per_class_has_the_same_classes_everywhere(clients: int) -> None:
    parts = drawn("iid_per_class", clients=clients)
    assert (histograms(parts) == 60 // clients).all()
    for label in range(10):  # consecutive rows of every class
        taken = np.concatenate([rows[LABELS[rows] == label] for rows in parts])
        of_class = [row for row in range(600) if LABELS[row] == label]
        assert taken.tolist() == of_class[: len(taken)]


def test_iid_per_class_is_five_of_each_class_on_cifar100() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 500))
    assert (histograms(drawn("iid_per_class", labels=labels, clients=100), labels) == 5).all()


@given(clients=st.integers(1, 600))
@quick
def test_slices_follow_each_other_and_the_permutation_does_not(clients: int) -> None:
    for kind in ("iid_slices", "iid"):
        parts = drawn(kind, clients=clients)
        sizes = {len(part) for part in parts}
        assert max(sizes) - min(sizes) <= 1
        assert np.array_equal(np.concatenate(parts), np.arange(600)) == (kind == "iid_slices")


@given(domains=arrays(np.int64, 50, elements=st.integers(0, 3)))
@quick
def test_a_client_is_a_domain(domains: Rows) -> None:
    known = sorted(set(domains.tolist()))
    division = Division("per_domain", len(known))
    if known != list(range(len(known))):
        missing = min(set(range(4)) - set(known))
        with pytest.raises(UserError, match=f"domain {missing} "):
            partition(division, np.zeros(50, dtype=np.int64), np.random.default_rng(0), domains)
        return
    parts = partition(division, np.zeros(50, dtype=np.int64), np.random.default_rng(0), domains)
    assert [set(domains[rows].tolist()) for rows in parts] == [{domain} for domain in known]
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))


def test_the_long_tails_of_cifar10() -> None:
    counts = longtail_counts(5000, 10, 0.01)
    assert counts.tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert (counts.sum(), longtail_counts(5000, 10, 0.1).sum()) == (12_406, 20_431)
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    (rows,) = drawn("longtail_stateless", labels=labels, clients=1, phi=1.0, rho=0.01)
    held = np.bincount(labels[rows])
    assert sorted(held.tolist(), reverse=True) == counts.tolist()
    assert held.tolist() != counts.tolist()  # the classes are in an order of their own


@pytest.mark.parametrize(("rho", "survives"), [(0.01, 0.248), (0.1, 0.409)])
def test_the_share_that_survives_is_the_same_at_every_fraction(rho: float, survives: float) -> None:
    labels = np.repeat(np.arange(10), 5000)
    parts = drawn("longtail_stateless", 1, labels, clients=30, phi=0.1, rho=rho)
    # a little less: a class that the draw met fewer than n_max times cannot give n_max
    assert np.mean([len(rows) for rows in parts]) / 5000 == pytest.approx(survives, rel=0.015)


@given(
    clients=st.integers(1, 12), phi=st.floats(0.02, 1), rho=st.floats(1e-6, 1), seed=seeds,
)  # fmt: skip
@quick
def test_a_fresh_client_is_below_its_long_tail(clients: int, phi: float, rho: float, seed: int) -> None:
    parts = drawn("longtail_stateless", seed, clients=clients, phi=phi, rho=rho)
    most = int(phi * 600 + 1e-9) / 10
    ceiling = np.array([int(most * rho ** (r / 9) + 1e-9) for r in range(10)])
    assert len(parts) == clients
    for rows, counts in zip(parts, histograms(parts), strict=True):
        assert len(rows) > 0
        assert len(np.unique(rows)) == len(rows)
        assert (np.sort(counts)[::-1] <= ceiling).all()


def test_fresh_clients_differ_within_and_between_rounds() -> None:
    split = Split(torch.zeros(600, 1), torch.from_numpy(LABELS))
    division = Division("longtail_stateless", 3, phi=0.5, rho=0.1)
    first, second = (divide(split, division, train_samples=None, seed=1, round=t) for t in (0, 1))
    clients = [tuple(rows.tolist()) for rows in (*first, *second)]
    assert len(set(clients)) == 6
    orders = {tuple(np.bincount(LABELS[list(rows)], minlength=10).argsort()) for rows in clients}
    assert len(orders) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_only_fresh_kinds_follow_the_round_and_all_stay_in_the_part(kind: str) -> None:
    domains = torch.from_numpy(DOMAINS)
    split = Split(torch.zeros(600, 1), torch.from_numpy(LABELS), domains, clients=domains)
    division = Division(kind, 5, **PARAMETERS)
    first, later = (divide(split, division, train_samples=300, seed=3, round=t) for t in (0, 7))
    assert (kind in FRESH) != all(map(torch.equal, first, later))
    whole = divide(split, Division("iid", 1), train_samples=300, seed=3)[0]
    assert set(torch.cat(first).tolist()) <= set(whole.tolist())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("iid_slices", "per_domain", "own")])
def test_a_class_without_samples_is_none(kind: str) -> None:
    gap = LABELS + (LABELS > 3)  # nobody is a four
    renamed = (drawn(kind, labels=labels) for labels in (LABELS, gap))
    assert all(np.array_equal(a, b) for a, b in zip(*renamed, strict=True))


def test_digits_serve_every_kind_but_domains() -> None:
    labels = load("digits").train.labels.numpy()
    for kind in set(KINDS) - {"per_domain"}:
        assert len(drawn(kind, labels=labels, clients=8)) == 8


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("dirichlet", {}, "unknown partition 'dirichlet'; did you mean 'dirichlet_balanced'"),
        ("elsewhere", {}, "unknown partition 'elsewhere'; choose one of iid, "),
        ("iid", {"clients": 601}, "601 clients cannot share 600 samples"),
        ("iid", {"clients": 0}, "at least 1"),
        ("iid_per_class", {"clients": 61}, "class 0 has 60, not 61"),
        ("dirichlet_balanced", {"clients": 61}, "at most 60 clients"),
        ("dirichlet_balanced", {"clients": 30, "alpha": 0.01}, "in 1000 tries; raise --alpha"),
        ("dirichlet_balanced", {"alpha": 1e308}, "between 0.01 and 1e6"),
        ("dirichlet_equal", {"alpha": 1e308}, "between 0.01 and 1e6"),
        ("dirichlet_equal", {"alpha": 0.0}, "--alpha above 0, not 0.0"),
        ("dirichlet_equal", {"alpha": None}, "needs --alpha, such as 0.5"),
        ("dirichlet_balanced", {"alpha": float("nan")}, "--alpha above 0"),
        ("dirichlet_equal", {"exhausted": "stop"}, "--exhausted is redraw or refill, not 'stop'"),
        ("longtail_stateless", {"phi": None}, "longtail_stateless needs --phi, such as 0.1"),
        ("longtail_stateless", {"phi": 1.5}, "--phi is a share, at most 1"),
        ("longtail_stateless", {"rho": 0.0}, "--rho above 0"),
        ("longtail_stateless", {"phi": 0.01}, "draws 6 of 600 samples at phi 0.01, less than one"),
        ("quantity_skew", {"clients": 61}, "at most 60 clients"),
        ("quantity_skew", {"clients": 30, "alpha": 0.01}, "quantity_skew found no draw .* raise --alpha"),
        ("quantity_skew", {"alpha": 1e308}, "between 0.01 and 1e6"),
        ("shards", {"shards": None}, "needs --shards, such as 2"),
        ("shards", {"clients": 50, "shards": 13}, "50 clients of 13 shards need as many samples"),
        ("fixed_classes", {"classes_per_client": None}, "needs --classes-per-client, such as 2"),
        ("fixed_classes", {"classes_per_client": 0}, "needs --classes-per-client above 0, not 0"),
        ("fixed_classes", {"classes_per_client": 11}, "--classes-per-client 11 of 10 classes; lower it"),
        ("fixed_classes", {"clients": 61, "classes_per_client": 10}, "61 clients have class 0, which has 60"),
        ("per_domain", {"clients": 4}, "there are 5, so use --clients 5, not 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(kind: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        drawn(kind, **changed)


def test_what_only_the_data_can_tell_is_refused() -> None:
    with pytest.raises(UserError, match="sorted by class"):
        drawn("iid_slices", labels=np.sort(LABELS))
    with pytest.raises(UserError, match="several domains"):
        partition(Division("per_domain", 5), LABELS, np.random.default_rng(0))


def test_a_division_says_which_parameters_it_reads() -> None:
    assert Division("dirichlet_equal", 3, 0.5, phi=9.0).parameters == {"alpha": 0.5, "exhausted": "redraw"}
    read = {name for kind in KINDS for name in Division(kind, 1, **PARAMETERS).parameters}
    assert read == set(asdict(Division("iid", 1))) - {"kind", "clients"}


def test_data_of_clients_are_those_of_as_many_though_some_have_no_row_left() -> None:
    labels, owners = np.zeros(20, dtype=np.int64), np.repeat([0, 1], 10)
    division = Division("own", 3)
    with pytest.raises(UserError, match="--train-samples leaves client 2 none"):
        partition(division, labels, np.random.default_rng(0), owners=owners, holders=3)
    with pytest.raises(UserError, match="the data are 2 clients', not 3"):
        partition(division, labels, np.random.default_rng(0), owners=owners)


def test_a_client_that_the_drawn_rows_leave_out_is_named() -> None:
    images, labels = torch.zeros(101, 1, 2, 2), torch.zeros(101, dtype=torch.int64)
    split = Split(images, labels, clients=torch.tensor([0] * 50 + [1] * 50 + [2]))
    with pytest.raises(UserError, match="--train-samples leaves client 2 none; raise it"):
        divide(split, Division("own", 3), train_samples=20, seed=1)
