import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.data.partition import KINDS, dirichlet_equal, partition
from fedscope.errors import UserError

LABELS = np.repeat(np.arange(10), 60)[np.random.default_rng(0).permutation(600)]


@pytest.mark.parametrize("kind", KINDS)
@given(clients=st.integers(1, 20), alpha=st.floats(0.3, 100), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_a_partition_is_disjoint_and_complete(kind: str, clients: int, alpha: float, seed: int) -> None:
    parts = partition(kind, LABELS, clients, alpha, np.random.default_rng(seed))
    rows = np.concatenate(parts)
    assert len(parts) == clients
    assert len(np.unique(rows)) == len(rows)
    left_over = 600 % clients if kind == "dirichlet_equal" else 0
    assert len(rows) == 600 - left_over


@given(alpha=st.floats(0.3, 5), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_balanced_sizes_are_bounded(alpha: float, seed: int) -> None:
    parts = partition("dirichlet_balanced", LABELS, 8, alpha, np.random.default_rng(seed))
    assert min(map(len, parts)) >= 10
    assert max(map(len, parts)) <= 600 / 8 + 60


@pytest.mark.parametrize("alpha", [0.01, 0.3, 50.0])
def test_equal_sizes_are_equal(alpha: float) -> None:
    parts = partition("dirichlet_equal", LABELS, 7, alpha, np.random.default_rng(1))
    assert {len(part) for part in parts} == {600 // 7}


@pytest.mark.parametrize("kind", ["dirichlet_balanced", "dirichlet_equal"])
def test_alpha_is_the_concentration(kind: str) -> None:
    def spread(alpha: float) -> float:
        parts = partition(kind, LABELS, 6, alpha, np.random.default_rng(2))
        shares = np.stack([np.bincount(LABELS[p], minlength=10) / len(p) for p in parts])
        return float(shares.std(0).mean())

    assert spread(0.3) > 2 * spread(5.0) > 2 * spread(1e6)


def test_equal_follows_the_clients_shares_while_classes_last() -> None:
    labels = np.repeat(np.arange(4), 5000)
    generator = np.random.default_rng(3)
    shares = np.random.default_rng(3).dirichlet(np.full(4, 1.0), size=200)
    parts = dirichlet_equal(labels, 200, 1.0, generator)
    realised = np.stack([np.bincount(labels[p], minlength=4) / 100 for p in parts])
    assert np.corrcoef(realised.ravel(), shares.ravel())[0, 1] > 0.95


def test_the_same_seed_gives_the_same_partition() -> None:
    first, second = (
        partition("dirichlet_balanced", LABELS, 5, 0.5, np.random.default_rng(7)) for _ in range(2)
    )
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("kind", "clients", "alpha", "message"),
    [
        ("dirichlet", 5, 0.5, "unknown partition"),
        ("iid", 601, None, "601 clients cannot share 600 samples"),
        ("iid", 0, None, "at least 1"),
        ("dirichlet_balanced", 61, 0.5, "at most 60 clients"),
        ("dirichlet_balanced", 30, 0.02, "raise --alpha"),
        ("dirichlet_equal", 5, 0.0, "--alpha above 0"),
        ("dirichlet_equal", 5, None, "--alpha above 0"),
        ("dirichlet_balanced", 5, float("nan"), "--alpha above 0"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, clients: int, alpha: float | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        partition(kind, LABELS, clients, alpha, np.random.default_rng(0))
