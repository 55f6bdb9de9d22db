"""The oracle's own tests: the specification's invariants and hand values, PyTorch's optimizers."""

import copy
import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tests.federated import equations, reference
from tests.federated.equations import Vector
from tests.federated.reference import Round, Toy, Value, replay, run


class Scalar(nn.Module):
    """One parameter w; maps rows (scale, shift) to scale·(w − shift)."""

    def __init__(self, start: float = 0.0):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(start))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0] * (self.w - x[:, 1])


def half_square(out: Tensor, _labels: Tensor) -> Tensor:
    return out.square().mean() / 2


def slope(out: Tensor, _labels: Tensor) -> Tensor:
    return out.mean()


def in_order(sizes: list[int], epochs: int) -> reference.Orders:
    return lambda _round, client: [torch.arange(sizes[client])] * epochs


def scalars(
    rows: list[list[tuple[float, float]]], rounds: int, epochs: int = 1, start: float = 0.0, lr: float = 0.05
) -> Toy:
    """Return clients with rows (scale, shift), one row a batch: losses ½·(scale·(w − shift))²."""
    clients = [(torch.tensor(held), torch.zeros(len(held), dtype=torch.long)) for held in rows]
    everyone = [list(range(len(rows)))] * rounds
    return Toy(
        Scalar(start), clients, in_order([len(held) for held in rows], epochs), everyone,
        epochs=epochs, batch_size=1, lr=lr, loss=half_square,
    )  # fmt: skip


def pair(rounds: int) -> Toy:
    """Return the clients ½·1·w² and ½·4·(w − 3)², 5 steps of 0.05: the sum's minimum is 12/5."""
    return scalars([[(1.0, 0.0)], [(2.0, 3.0)]], rounds, epochs=5)


def small(normalised: bool = False, sizes: tuple[int, ...] = (7, 12, 9), partial: bool = True) -> Toy:
    """Return three rounds of a small network on random data, ragged batches, two steps of the rate."""
    draw = torch.Generator().manual_seed(3)
    middle: list[nn.Module] = [nn.BatchNorm1d(6)] if normalised else []
    module = nn.Sequential(nn.Linear(4, 6), *middle, nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=draw) * 0.5
    clients = [(torch.randn(n, 4, generator=draw), torch.randint(0, 3, (n,), generator=draw)) for n in sizes]

    def orders(round: int, client: int) -> list[Tensor]:
        own = torch.Generator().manual_seed(10 * round + client)
        return [torch.randperm(sizes[client], generator=own) for _ in range(2)]

    participants = [[0, 2], [0, 1], [1, 2]] if partial else [list(range(len(sizes)))] * 3
    return Toy(module, clients, orders, participants, epochs=2, batch_size=5, lr=0.1, lr_decay=0.9)


def assert_same(a: list[Vector], b: list[Vector], atol: float = 0.0) -> None:
    for before, after in zip(a, b, strict=True):
        for name in before:
            torch.testing.assert_close(before[name], after[name], rtol=0, atol=atol)


def only_parameters(state: Vector) -> Vector:
    return {n: v for n, v in state.items() if "running" not in n}


def mean(vectors: list[Vector]) -> Vector:
    return equations.weighted_sum(vectors, [1 / len(vectors)] * len(vectors))


# The pair of quadratics (2.11): exact methods find the optimum of the sum, the others stall beside it.


@pytest.mark.parametrize(
    ("method", "options", "limit"),
    [
        ("feddyn", {"dyn.alpha": 0.5}, 2.4),
        ("feddyn", {"dyn.alpha": 0.5, "dyn.quadratic": "loss"}, 2.4),
        ("fedspeed", {"dyn.alpha": 0.5, "speed.rho": 0.0}, 2.4),
        ("fedspeed", {"dyn.alpha": 0.5, "speed.rho": 0.1}, 2.46),  # w + ρ + 4(w − ρ − 3) = 0
        ("feddc", {"dc.alpha": 0.5}, 2.4),
        ("scaffold", {}, 2.4),
        ("scaffold", {"scaffold.option": "I"}, 2.4),
        ("scaffold", {"scaffold.apply": "after_step"}, 2.4),
        ("fedavg", {}, 2.2447),
        ("fedprox", {"prox.mu": 0.5}, 2.2454),
    ],
)
def test_the_pair_of_quadratics(method: str, options: dict[str, Value], limit: float) -> None:
    final = run(method, pair(100), options)[-1]
    assert final["w"].item() == pytest.approx(limit, abs=5e-5)


def test_an_exact_local_minimum_leaves_the_gradient_in_the_dual() -> None:
    toy = scalars([[(1.0, 0.0)], [(2.0, 3.0)]], 1, epochs=600)
    done = replay("feddyn", toy, {"dyn.alpha": 0.5})[-1]
    for k, (scale, shift) in enumerate([(1.0, 0.0), (2.0, 3.0)]):
        gradient = scale**2 * (done.uploads[k]["w"].item() - shift)
        assert gradient == pytest.approx(-0.5 * done.clients["h"][k]["w"].item(), abs=1e-9)


# FedAvg and FedProx


@pytest.mark.parametrize("nesterov", [False, True])
def test_one_client_is_pytorchs_sgd(nesterov: bool) -> None:
    toy = small(normalised=True, sizes=(12,), partial=False)
    toy = replace(toy, momentum=0.9, nesterov=nesterov, weight_decay=0.01, clip=0.5, lr_decay=1.0)
    ours = run("fedavg", replace(toy, participants=[[0]]))[-1]
    module, (x, y) = copy.deepcopy(toy.module).double(), toy.clients[0]
    sgd = torch.optim.SGD(module.parameters(), 0.1, 0.9, weight_decay=0.01, nesterov=nesterov)
    for order in toy.orders(0, 0):
        for batch in order.split(5):
            sgd.zero_grad()
            nn.functional.cross_entropy(module(x.double()[batch]), y[batch]).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            sgd.step()
    state = module.state_dict()
    assert_same([ours], [{name: state[name] for name in ours}], 1e-14)


def test_the_mean_is_weighted_by_size() -> None:
    toy = scalars([[(1.0, 0.0)], [(1.0, 4.0)] * 3], 1, lr=1.0)  # one step of rate 1 ends at the shift
    assert run("fedavg", toy)[0]["w"].item() == 3.0


def test_rate_zero_changes_nothing() -> None:
    toy = replace(small(), lr=0.0)
    start = {name: p.double() for name, p in toy.module.named_parameters()}
    assert_same(run("fedavg", toy), [start] * 3, 1e-15)


def test_prox_pulls_a_quadratic_to_the_weighted_optimum() -> None:
    toy = scalars([[(2.0, 3.0)]], 1, epochs=400, start=1.0)
    assert run("fedprox", toy, {"prox.mu": 0.5})[0]["w"].item() == pytest.approx((4 * 3 + 0.5 * 1) / 4.5)


def test_prox_of_the_plain_norm_is_zero_at_the_anchor() -> None:
    zero = {"a": torch.zeros(2)}
    assert equations.prox_gradient(zero, zero, 1.0, "norm")["a"].tolist() == [0.0, 0.0]
    away = equations.prox_gradient({"a": torch.tensor([3.0, 4.0])}, zero, 2.0, "norm")
    assert away["a"].tolist() == pytest.approx([0.6, 0.8])


def test_where_prox_stands_matters_under_a_clip_only() -> None:
    options: list[dict[str, Value]] = [{"prox.mu": 1.0}, {"prox.mu": 1.0, "prox.split": "weight_decay"}]
    loose, tight = small(), replace(small(), clip=0.1)
    assert_same(run("fedprox", loose, options[0]), run("fedprox", loose, options[1]), 1e-14)
    inside, outside = (run("fedprox", tight, o)[-1] for o in options)
    assert (inside["0.weight"] - outside["0.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("method", "options", "host"),
    [
        ("fedprox", {"prox.mu": 0.0}, "fedavg"),
        ("fedprox", {"prox.mu": 0.0, "prox.form": "norm"}, "fedavg"),
        ("moon", {"moon.mu": 0.0}, "fedavg"),
        ("feddyn+man", {"man.zeta": 0.0}, "feddyn"),
        ("fedsam+man", {"man.zeta": 0.0}, "fedsam"),
        ("fedsam", {"sam.rho": 0.0}, "fedavg"),
        ("fedasam", {"asam.rho": 0.0}, "fedavg"),
        ("fedspeed", {"speed.rho": 0.0}, "feddyn"),
        ("fedcurv", {"fedcurv.lambda": 0.0}, "fedavg"),
        ("fedfor", {"fedfor.alpha": 0.0}, "fedavg"),
        ("fedavgm", {"avgm.beta": 0.0}, "fedavg"),
        ("fedbn+feddyn", {}, "feddyn"),
    ],
)
def test_strength_zero_is_the_host(method: str, options: dict[str, Value], host: str) -> None:
    toy = replace(small(), momentum=0.5, weight_decay=0.01, clip=1.0)
    assert_same(run(method, toy, options), run(host, toy), 1e-14)


@pytest.mark.parametrize("method", ["fedcurv", "fedfor", "moon", "scaffold"])
def test_the_first_round_of_a_method_that_looks_back_is_fedavgs(method: str) -> None:
    toy = replace(small(normalised=True, sizes=(9, 9, 9)), clip=1.0)
    assert_same(run(method, toy)[:1], run("fedavg", toy)[:1], 1e-12)
    assert (run(method, toy)[-1]["0.weight"] - run("fedavg", toy)[-1]["0.weight"]).abs().max() > 1e-6


# MOON and MAN


def test_moon_by_hand() -> None:
    z, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert equations.moon_term(z, 3 * z, other, 0.5).item() == pytest.approx(0.126928, abs=1e-6)
    assert equations.moon_term(z, other, other, 0.5).item() == pytest.approx(math.log(2))


def test_man_by_hand() -> None:
    # w·x at w = 1, x = (1, 2), one tap: d/dw ζ·mean((w·x)²) = 2ζ·2.5; the labels' loss is silenced.
    toy = scalars([[(1.0, 0.0), (2.0, 0.0)]], 1, start=1.0, lr=0.1)
    module = nn.Sequential(Scalar(1.0), nn.ReLU())
    toy = replace(toy, module=module, batch_size=2, loss=lambda out, _labels: 0 * out.sum())
    moves = {half: 1 - run("man", toy, {"man.half": half})[0]["0.w"].item() for half in (False, True)}
    assert moves[False] == pytest.approx(0.1 * 0.15 * 5)
    assert moves[True] == pytest.approx(0.1 * 0.15 * 5 / 2)
    with_logits = 1 - run("man", toy, {"man.include_logits": True})[0]["0.w"].item()
    assert with_logits == pytest.approx(2 * moves[False])


# Ascents


def test_the_ascents_have_their_length() -> None:
    draw = torch.Generator().manual_seed(0)
    w = {
        "weight": torch.randn(3, 2, generator=draw).double(),
        "bias": torch.randn(3, generator=draw).double(),
    }
    g = {name: torch.randn(w[name].shape, generator=draw).double() for name in w}
    assert equations.norm(equations.sam_ascent(g, 0.05)) == pytest.approx(0.05)
    e = equations.asam_ascent(w, g, 0.5, 0.2, "name_weight")
    stretched = {"weight": e["weight"] / (w["weight"].abs() + 0.2), "bias": e["bias"]}
    assert equations.norm(stretched) == pytest.approx(0.5)
    level = {"weight": torch.full((2, 2), -0.3, dtype=torch.float64)}
    e = equations.asam_ascent(level, {"weight": g["weight"][:2]}, 0.5, 0.2, "all")
    alone = equations.sam_ascent({"weight": g["weight"][:2]}, 0.5 * 0.5)
    assert_same([e], [alone], 1e-14)


def test_sam_on_a_quadratic() -> None:
    toy = scalars([[(2.0, 0.0)]], 1, start=-1.0, lr=0.1)
    assert run("fedsam", toy, {"sam.rho": 0.5})[0]["w"].item() == pytest.approx(-1 + 0.1 * 4 * 1.5)


def test_the_stale_ascent_starts_with_the_second_step() -> None:
    options: dict[str, Value] = {"dyn.alpha": 0.5, "speed.rho": 0.2}
    one = replace(small(sizes=(5, 5, 5)), participants=[[0, 1]], epochs=1)
    one = replace(one, orders=lambda _round, _client: [torch.arange(5)])
    two = replace(one, epochs=2, orders=lambda _round, _client: [torch.arange(5)] * 2)
    stale = options | {"speed.stale_ascent": True}
    assert_same(run("fedspeed", one, options), run("fedspeed", one, stale))
    moved = [run("fedspeed", two, o)[0]["0.weight"] for o in (options, stale)]
    assert (moved[0] - moved[1]).abs().max() > 1e-6


# Drift, duals and control variates


@pytest.mark.parametrize("method", ["feddyn", "feddc", "fedspeed"])
@pytest.mark.parametrize("partial", [True, False])
def test_the_mean_drift_is_what_the_server_adds(method: str, partial: bool) -> None:
    toy = replace(small(partial=partial), momentum=0.5)
    theta = {name: p.detach().double() for name, p in toy.module.named_parameters()}
    total = [equations.zeros(theta) for _ in toy.clients]
    for done in replay(method, toy, {"dyn.alpha": 0.3, "dc.alpha": 0.3}):
        uploads = mean(list(done.uploads.values()))
        added = equations.minus(done.state, uploads)
        assert_same([added], [mean(done.clients["h"])], 1e-13)
        for k, upload in done.uploads.items():
            total[k] = equations.plus(total[k], equations.minus(upload, theta))
        assert_same(total, done.clients["h"], 1e-13)
        theta = done.state


@pytest.mark.parametrize(
    ("method", "option"), [("feddyn", "dyn.alpha"), ("feddc", "dc.alpha"), ("fedspeed", "dyn.alpha")]
)
@pytest.mark.parametrize("partial", [True, False])
def test_the_first_round_is_fedproxs_and_overshoots(method: str, option: str, partial: bool) -> None:
    toy = small(sizes=(9, 9, 9), partial=partial)
    ours = replay(method, toy, {option: 0.3, "speed.rho": 0.0})[0]
    prox = replay("fedprox", toy, {"prox.mu": 0.3})[0]
    assert_same(list(ours.uploads.values()), list(prox.uploads.values()), 1e-14)
    start = {name: p.detach().double() for name, p in toy.module.named_parameters()}
    uploads = mean(list(ours.uploads.values()))
    step = equations.minus(uploads, start)
    assert_same([ours.state], [equations.plus(uploads, step, len(ours.uploads) / 3)], 1e-14)


def test_without_its_pull_fedspeed_trains_as_fedsam_does() -> None:
    toy = small(sizes=(9, 9, 9))
    speed = replay("fedspeed", toy, {"dyn.alpha": 0.0, "speed.rho": 0.2})[0]
    sam = replay("fedsam", toy, {"sam.rho": 0.2})[0]
    assert_same(list(speed.uploads.values()), list(sam.uploads.values()), 1e-6)
    assert (speed.state["0.weight"] - sam.state["0.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("steps", ["actual", "nominal"])
def test_the_global_memory_is_the_mean_of_the_local_ones(partial: bool, steps: str) -> None:
    options: dict[str, Value] = {"cv.steps": steps, "dc.alpha": 0.3}
    toy = small(partial=partial)
    shares = [len(x) / 28 if steps == "nominal" else 1 / 3 for x, _ in toy.clients]  # s_k/N
    for done in replay("scaffold", toy, options):
        weighted = equations.weighted_sum(done.clients["c_k"], shares)
        assert_same([done.server["c"]], [weighted], 1e-12)
    for done in replay("feddc", small(sizes=(9, 9, 9), partial=partial), options):
        assert_same([done.server["g"]], [mean(done.clients["g_k"])], 1e-12)


def test_the_published_scaffold_with_unequal_clients_by_hand() -> None:
    """Slopes 1 and 2 on 1 and 3 samples: 2 steps each, c/s_k in the loss, c_k's change times s_k."""
    toy = replace(scalars([[(1.0, 0.0)], [(2.0, 0.0)] * 3], 2, lr=0.1), loss=slope)
    sizes = [1, 3]
    toy = replace(toy, orders=lambda _round, client: [torch.arange(sizes[client])] * 2)
    first, second = replay("scaffold", toy, {"cv.steps": "nominal"})
    assert [first.uploads[k]["w"].item() for k in (0, 1)] == pytest.approx([-0.2, -0.4])
    assert [c["w"].item() for c in first.clients["c_k"]] == pytest.approx([1.0, 2.0])
    assert first.server["c"]["w"].item() == pytest.approx((0.5 * 1 + 1.5 * 2) / 2)
    moved = second.uploads[0]["w"].item() - first.state["w"].item()
    assert moved == pytest.approx(-0.2 * (1 + 1.75 / 0.5 - 1))
    assert second.clients["c_k"][0]["w"].item() == pytest.approx(1 - 1.75 + 3.5)


def test_both_control_variates_agree_after_one_full_batch() -> None:
    toy = replace(small(partial=False), epochs=1, batch_size=12)
    toy = replace(toy, orders=lambda _round, client: [torch.arange(len(toy.clients[client][0]))])
    toy = replace(toy, participants=[[0, 1, 2]])
    by_path, by_pass = (replay("scaffold", toy, {"scaffold.option": o})[0] for o in ("II", "I"))
    assert_same(by_path.clients["c_k"], by_pass.clients["c_k"], 1e-12)


def test_when_the_control_variate_acts_matters_under_a_clip_only() -> None:
    moments: list[dict[str, Value]] = [{"scaffold.apply": "loss"}, {"scaffold.apply": "after_step"}]
    loose = [run("scaffold", replace(small(), weight_decay=0.01), o) for o in moments]
    assert_same(loose[0], loose[1], 1e-13)
    tight = [run("scaffold", replace(small(), clip=0.1), o)[-1]["0.weight"] for o in moments]
    assert (tight[0] - tight[1]).abs().max() > 1e-6


def test_unequal_sizes_scale_the_pull() -> None:
    small_client, large = [(1.0, 1.0)], [(1.0, 1.0)] * 3  # shares ½ and 3⁄2
    toy = scalars([small_client, large], 1, start=0.0)
    toy = replace(toy, orders=lambda _round, _client: [torch.tensor([0]), torch.tensor([0])], epochs=2)
    done = replay("feddyn", toy, {"dyn.alpha": 0.6})[0]
    for k, alpha in enumerate((1.2, 0.4)):
        w = 0.05
        w -= 0.05 * (w - 1 + alpha * w)
        assert done.uploads[k]["w"].item() == pytest.approx(w)


# FedCurv


def test_fedcurv_by_hand() -> None:
    w, other = {"a": torch.tensor([1.0, 4.0])}, {"a": torch.tensor([0.0, 1.0])}
    ones = {"a": torch.ones(2)}
    assert equations.curv_gradient(w, [(ones, other)], 0.5)["a"].tolist() == [1.0, 3.0]  # of λ‖w − w_j‖²


def test_the_double_sum_is_what_u_and_v_say() -> None:
    draw = torch.Generator().manual_seed(0)
    w, *rest = ({"a": torch.rand(4, generator=draw).double()} for _ in range(7))
    pairs = list(zip(rest[:3], rest[3:], strict=True))
    u = sum(f["a"] for f, _ in pairs)
    v = sum(f["a"] * w_j["a"] for f, w_j in pairs)
    summed = {"a": 2 * 0.3 * (u * w["a"] - v)}
    assert_same([equations.curv_gradient(w, pairs, 0.3)], [summed], 1e-14)


def test_the_fisher_of_a_linear_gaussian_model_is_the_second_moment() -> None:
    rows = [(1.0, 1.0), (2.0, 0.5), (3.0, -1 / 3)]  # residuals scale·(w − shift) = ∓1 at w = 0
    toy = scalars([rows], 1)
    federation = reference._Federation("fedcurv", toy, {})
    fisher = federation.fisher(0, {"w": torch.zeros(()).double()}, {})
    assert fisher["w"].item() == pytest.approx((1 + 4 + 9) / 3)


def test_the_fisher_by_batches() -> None:
    toy = small()
    federation = reference._Federation("fedcurv", toy, {"fisher.batch": True})
    w, (x, y) = federation.theta, federation.data[0]
    parts = [federation.plain_gradient(w, {}, x[a:b], y[a:b]) for a, b in ((0, 5), (5, 7))]
    expected = {n: (5 * parts[0][n] ** 2 + 2 * parts[1][n] ** 2) / 7 for n in w}
    assert_same([federation.fisher(0, w, {})], [expected], 1e-15)


# FedBN


def statistics(done: Round, k: int) -> Vector:
    return {name: v for name, v in done.uploads[k].items() if name.startswith("1.")}


def test_fedbn_keeps_each_clients_batchnorm_and_shares_the_rest() -> None:
    toy = small(normalised=True)
    rounds = replay("fedbn", toy)
    assert_same([rounds[-1].clients["own"][0]], [statistics(rounds[1], 0)])  # client 0 sat out the last round
    for done in rounds:
        assert done.clients["own"][0].keys() <= {
            f"1.{n}" for n in ("weight", "bias", "running_mean", "running_var")
        }
        assert_same([done.state], [mean(list(done.uploads.values()))], 1e-14)


def test_fedbn_by_name_takes_all_layers_where_none_has_a_name_or_is_in_a_shortcut() -> None:
    toy = small(normalised=True, sizes=(9, 9, 9))
    assert_same(run("fedbn", toy, {"fedbn.match": "name"}), run("fedbn", toy), 1e-14)
    assert (run("fedbn", toy)[-1]["0.weight"] - run("fedavg", toy)[-1]["0.weight"]).abs().max() > 1e-6


def test_identical_clients_under_fedbn_are_fedavg() -> None:
    toy = small(normalised=True, sizes=(9, 9), partial=False)
    toy = replace(toy, clients=toy.clients[:1] * 2, orders=lambda t, _client: small(sizes=(9,)).orders(t, 0))
    assert_same(run("fedbn", toy), run("fedavg", toy), 1e-14)


# FedFOR


def test_fedfor_by_hand() -> None:
    before, anchor = torch.zeros(4), torch.tensor([1.0, -1.0, 0.5, 0.0])
    w = {"a": torch.tensor([0.8, -1.3, 0.7, 2.0])}
    g = {"a": (before - anchor) / 0.1}
    gradient = equations.for_gradient(w, {"a": anchor}, g, 1.0, positive_only=True)["a"]
    assert gradient.tolist() == [-10, 0, 0, 0]
    assert (gradient * (w["a"] - anchor)).sum().item() == pytest.approx(2.0)
    everywhere = equations.for_gradient(w, {"a": anchor}, g, 1.0, positive_only=False)["a"]
    assert everywhere.tolist() == g["a"].tolist()


def test_fedfor_leaves_the_first_step_of_a_round_alone() -> None:
    toy = replace(small(), orders=lambda _round, _client: [torch.arange(5)], epochs=1)
    assert_same(run("fedfor", toy), run("fedavg", toy))


# Server optimizers and FedNova


def sliding(rounds: int) -> Toy:
    """Return one client of loss w: every round moves it by −η = −1/2."""
    return replace(scalars([[(1.0, 0.0)]], rounds, lr=0.5), loss=slope)


def test_server_momentum_tends_to_its_terminal_speed() -> None:
    path = [state["w"].item() for state in run("fedavgm", sliding(200))]
    assert path[-1] - path[-2] == pytest.approx(-0.5 / (1 - 0.9))
    path = [state["w"].item() for state in run("fedavgm", sliding(200), {"avgm.dampened": True})]
    assert path[-1] - path[-2] == pytest.approx(-0.5)


def test_fedadam_with_bias_correction_is_pytorchs_adam() -> None:
    toy = small()
    options: dict[str, Value] = {"adam.bias_correction": True, "adam.s0": "zero"}
    rounds = replay("fedadam", toy, options)
    w = [p.detach().double().clone().requires_grad_() for p in toy.module.parameters()]
    names = [name for name, _ in toy.module.named_parameters()]
    adam = torch.optim.Adam(w, 0.01, (0.9, 0.99), 1e-3)
    for done in rounds:
        sizes = [len(toy.clients[k][0]) for k in done.uploads]
        average = equations.weighted_sum(list(done.uploads.values()), [n / sum(sizes) for n in sizes])
        for name, leaf in zip(names, w, strict=True):
            leaf.grad = leaf.detach() - average[name]
        adam.step()
        assert_same([done.state], [dict(zip(names, w, strict=True))], 1e-13)


def test_yogi_starts_as_adam_does_and_adagrad_slows_down() -> None:
    adam, yogi = (run(f"fed{f}", small(), {f"{f}.s0": "zero"}) for f in ("adam", "yogi"))
    assert_same(adam[:1], yogi[:1], 1e-14)
    assert (adam[-1]["0.weight"] - yogi[-1]["0.weight"]).abs().max() > 1e-6
    path = [0.0] + [state["w"].item() for state in run("fedadagrad", sliding(6))]
    speeds = [before - after for before, after in pairwise(path)]
    assert speeds == sorted(speeds, reverse=True)
    assert speeds[1] == pytest.approx(0.01 * 0.5 / (math.sqrt(1e-6 + 2 * 0.25) + 1e-3))


def test_fednova_by_hand() -> None:
    toy = replace(scalars([[(1.0, 0.0)] * 3, [(2.0, 0.0)] * 3], 1, lr=0.1), loss=slope)
    steps = [torch.tensor([0]), torch.arange(3)]
    toy = replace(toy, orders=lambda _round, client: [steps[client]])
    assert run("fednova", toy)[0]["w"].item() == pytest.approx(-3 * 0.1)
    assert run("fedavg", toy)[0]["w"].item() == pytest.approx(-3.5 * 0.1)


def test_fednova_with_equal_steps_is_fedavg() -> None:
    toy = replace(small(sizes=(9, 8, 7)), momentum=0.5)
    assert_same(run("fednova", toy), run("fedavg", toy), 1e-14)


def test_novas_steps() -> None:
    assert equations.nova_steps(3, 0.9) == pytest.approx(5.61)
    assert equations.nova_steps(10, 0.5) == pytest.approx(18.00195, abs=1e-5)
    assert equations.nova_steps(7) == 7
    assert equations.nova_steps(6, shrinkage=0.1) == pytest.approx((1 - 0.9**6) / 0.1)
    for nesterov in (False, True):
        w = torch.zeros((), dtype=torch.float64, requires_grad=True)
        sgd = torch.optim.SGD([w], 1.0, 0.9, nesterov=nesterov)
        for _ in range(4):
            w.grad = torch.tensor(-1.0, dtype=torch.float64)
            sgd.step()
        assert equations.nova_steps(4, 0.9, nesterov) == pytest.approx(w.item())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"prox\.my"):
        run("fedprox", small(), {"prox.my": 1.0})
    with pytest.raises(ValueError, match="fedpox"):
        run("fedpox", small())
