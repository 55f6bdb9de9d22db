import math
from typing import Any

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.choices import ReadingName
from fedscope.errors import UserError
from fedscope.landscape import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.perturbed_loss import Perturbed
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, Search, Vertices, _Halvings, checkpoints
from fedscope.landscape.sharpness.sharpness_result import Cost, Sharpness
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from fedscope.statistics.standard_errors import data_stderr
from tests import tiers
from tests.landscape.sharpness.authors import worst_rise
from tests.landscape.sharpness.cases import Quadratic, labelled, matrix_of, mean_of, quadratic, relu_net


def at_zero(batch_size: int = 12) -> tuple[Quadratic, Batches]:
    _, batches = quadratic(batch_size=batch_size)
    return Quadratic(torch.full((6,), 1e-9, dtype=torch.float64)), batches


def test_at_the_minimum_of_a_quadratic_it_is_half_of_the_squared_radius_times_the_largest_eigenvalue() -> (
    None
):
    net, batches = at_zero()
    expected = 0.3**2 * float(torch.linalg.eigvalsh(matrix_of(batches))[-1]) / 2
    found = worst_case_sharpness(net, mean_of, batches, rho=0.3, search=AutoPGD(200))
    assert found.value == pytest.approx(expected, rel=1e-6)
    few = worst_case_sharpness(net, mean_of, batches, rho=0.3)
    assert 0.8 * expected < few.value <= expected * (1 + 1e-9)
    assert few.cost.gradients == 21
    assert few.stderr_draws == 0
    assert few.interval() == (few.value, few.value)


def test_batches_count_by_their_samples() -> None:
    """In closed form, of a linear loss: ρ‖b̄‖ of each batch, of 5, 5 and 2 samples."""
    (_, slopes), y = quadratic(batch_size=12, sloped=True)[1][0]
    flat = Batches((torch.zeros(12, 6, 6, dtype=torch.float64), slopes), y, 5)
    norms = [float(part.mean(0).norm()) for part in slopes.split(5)]
    found = worst_case_sharpness(
        Quadratic(torch.ones(6, dtype=torch.float64)), mean_of, flat, rho=0.2, search=OneStep()
    )
    assert found.batches == pytest.approx([0.2 * norm for norm in norms])
    assert found.value == pytest.approx(0.2 * (5 * norms[0] + 5 * norms[1] + 2 * norms[2]) / 12)


def test_of_a_linear_loss_it_is_the_dual_norm_of_the_gradient() -> None:
    batches = quadratic(sloped=True)[1]
    x, y = batches[0]
    flat = Batches((torch.zeros_like(x[0]), x[1]), y, 4)
    slope, weights = x[1].mean(0), torch.linspace(-1, 2, 6, dtype=torch.float64)
    for p, dual in ((2, 2), (math.inf, 1)):
        for adaptive, c in ((False, torch.ones(6)), (True, weights.abs())):
            expected = 0.2 * float((c * slope).norm(p=dual))
            for search in (OneStep(), AutoPGD(60)):
                found = worst_case_sharpness(
                    Quadratic(weights), mean_of, flat, rho=0.2, p=p, adaptive=adaptive, search=search
                )
                assert found.value == pytest.approx(expected, rel=1e-6)


def test_the_step_of_sam_is_that_of_its_paper() -> None:
    net, batches = quadratic(batch_size=12, sloped=True)
    matrix, slope, w = matrix_of(batches), whole_slope(batches), net.w.detach()
    g = matrix @ w + slope
    delta = 0.1 * g / g.norm()
    expected = float(g @ delta + delta @ matrix @ delta / 2)
    assert worst_case_sharpness(net, mean_of, batches, rho=0.1, search=OneStep()).value == pytest.approx(
        expected
    )


def whole_slope(batches: Batches) -> torch.Tensor:
    return torch.cat([x[1] for x, _ in batches]).mean(0)


@pytest.mark.parametrize("linf", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("rho", [0.02, 0.5])
def test_its_numbers_are_those_of_the_authors_program(linf: bool, adaptive: bool, rho: float) -> None:
    net, batches = relu_net(), labelled()
    expected = [worst_rise(net, cross_entropy, x, y, rho, linf, adaptive, 20) for x, y in batches]
    found = worst_case_sharpness(
        net, cross_entropy, batches, rho=rho, p=math.inf if linf else 2, adaptive=adaptive,
        search=AutoPGD(reading="code"),
    )  # fmt: skip
    torch.testing.assert_close(list(found.batches), expected, rtol=1e-6, atol=1e-12)
    assert found.value == pytest.approx(sum(expected) / 3, rel=1e-6)


def test_normalised_logits_are_those_of_the_authors_wrapper() -> None:
    net, batches = relu_net(), labelled()

    def wrapped(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        off = outputs - outputs.mean(dim=1, keepdim=True)
        return cross_entropy(off / (off**2).sum(1, keepdim=True).sqrt(), y)

    expected = [worst_rise(net, wrapped, x, y, 0.01, True, True, 20) for x, y in batches]
    found = worst_case_sharpness(
        net, cross_entropy, batches, rho=0.01, p=math.inf, adaptive=True, normalize_logits=True,
        search=AutoPGD(reading="code"),
    )  # fmt: skip
    torch.testing.assert_close(list(found.batches), expected, rtol=1e-6, atol=1e-12)


def test_smaller_batches_have_the_larger_sharpness_and_near_equal_sizes() -> None:
    net, batches = relu_net(), labelled()
    whole_one, halves, eighths = (
        worst_case_sharpness(net, cross_entropy, batches, rho=0.1, m=m) for m in (24, 12, 5)
    )
    assert whole_one.value < halves.value < eighths.value
    assert (len(whole_one.batches), len(halves.batches), len(eighths.batches)) == (1, 2, 5)
    assert math.isnan(whole_one.stderr_data)
    assert whole_one.cost.gradients == eighths.cost.gradients == 21


@pytest.mark.parametrize("reading", ["paper", "code"])
def test_the_step_of_a_checkpoint_counts_in_the_next_window_of_the_paper(
    reading: ReadingName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 0, 1, 2 and 5 succeed, and step 5 is the first checkpoint of 20."""
    seen, halved = dict[int, bool](), _Halvings.halved

    def watched(self: _Halvings, i: int, best: float) -> bool:
        seen[i] = halved(self, i, best)
        return seen[i]

    monkeypatch.setattr(_Halvings, "halved", watched)
    losses = iter([0.0, 1.0, 2.0, 3.0, 2.0, 1.0, *map(float, range(4, 30))])
    AutoPGD(20, reading)(lambda _: (next(losses), torch.ones(2)), Geometry(), torch.ones(2), 1.0)
    assert checkpoints(20)[0] == 5
    assert seen[5] is (reading == "paper")


def test_the_network_is_left_as_it_was() -> None:
    net, batches = relu_net(), labelled()
    before = [p.detach().clone() for p in net.parameters()]
    worst_case_sharpness(net, cross_entropy, batches, rho=1.0)
    assert all(torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True))


def test_what_is_not_finite_stays_so() -> None:
    net, batches = quadratic()
    x, y = batches[0]
    bad = Batches((x[0] * torch.nan, x[1]), y, 4)
    assert math.isnan(worst_case_sharpness(net, mean_of, bad, rho=0.1).value)


def test_bad_numbers_are_refused() -> None:
    net, batches = relu_net(), labelled()
    with pytest.raises(UserError, match="rho is 0"):
        worst_case_sharpness(net, cross_entropy, batches, rho=0)
    with pytest.raises(UserError, match="m is 0"):
        worst_case_sharpness(net, cross_entropy, batches, rho=1, m=0)
    with pytest.raises(UserError, match="steps is 0"):
        AutoPGD(0)
    with pytest.raises(UserError, match="choose code or paper"):
        AutoPGD(reading="other")  # type: ignore[arg-type]


@pytest.mark.drawn
def test_the_interval_over_batches_covers_the_mean_over_all_batches() -> None:
    """A batch's exact ρ²λ_max/2 for A_b of one random entry: the mean of all batches is known."""
    draws = tiers.draws()
    g, hits = torch.Generator().manual_seed(2), 0
    for _ in range(draws):
        curvatures = torch.empty(16, 8, dtype=torch.float64).exponential_(generator=g).mean(1)
        rises = (0.5 * curvatures).tolist()
        stderr = data_stderr(torch.tensor(rises, dtype=torch.float64), (8,) * 16)
        found = Sharpness(sum(rises) / 16, 0.0, stderr, Cost(), 0, dof_data=15)
        low, high = found.population_interval()
        hits += low <= 0.5 <= high
    assert tiers.nominal(hits, draws)


def test_batches_of_m_samples_are_of_the_network_of_the_batches_that_are_given() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    batches = Batches(torch.randn(24, 4).double(), torch.arange(24) % 3, batch_size=24)
    whole = FlatLoss(net, cross_entropy, batches, bn="recalibrate")
    for m in (1, 4):
        own = Perturbed(net, cross_entropy, batches, m=m, bn="recalibrate")
        at = own.mean(own.values(torch.zeros_like(own.weights)))
        assert float(at) == pytest.approx(whole.value(whole.center), rel=1e-12)
    with pytest.raises(UserError, match="leave m out"):
        Perturbed(net, cross_entropy, batches, m=4, bn="batch")


def test_a_step_is_halved_where_neither_it_nor_the_maximum_changed() -> None:
    """All steps of both windows succeeded, so that the share of successes halves nothing."""
    halvings = _Halvings([2, 4], 1.0)
    halvings.succeeded = 2
    assert not halvings.halved(2, best=5.0)
    halvings.succeeded = 2
    assert halvings.halved(4, best=5.0)
    assert halvings.step == 1.0
    risen = _Halvings([2, 4], 1.0)
    for i, best in ((2, 5.0), (4, 6.0)):
        risen.succeeded = 2
        assert not risen.halved(i, best)


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_maximum_of_a_convex_loss_over_a_box_is_at_the_best_of_all_vertices(adaptive: bool) -> None:
    generator = torch.Generator().manual_seed(11)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 10)
    vertices, published = list[float](), list[float]()
    for seed in range(8):
        root = torch.randn(4, 10, generator=generator, dtype=torch.float64)
        slope, w = torch.randn(2, 10, generator=generator, dtype=torch.float64)
        data = Batches(((root.T @ root)[None], 0.1 * slope[None]), torch.zeros(1), 1)
        at = 0.3 * signs * (w.abs() if adaptive else 1)
        g = root.T @ root @ w + 0.1 * slope
        expected = float((at @ g + ((at @ root.T) ** 2).sum(1) / 2).max())
        given = (Quadratic(w), mean_of, data)
        found = worst_case_sharpness(*given, rho=0.3, p=math.inf, adaptive=adaptive, seed=seed)
        assert found.value <= expected * (1 + 1e-12)
        assert found.cost.gradients <= 21
        vertices.append(found.value / expected)
        at_zero = Batches(((root.T @ root)[None], 0 * slope[None]), torch.zeros(1), 1)
        low = worst_case_sharpness(Quadratic(1e-9 * w), mean_of, at_zero, rho=0.3, p=math.inf, seed=seed)
        published.append(low.value / float(((0.3 * signs @ root.T) ** 2).sum(1).max() / 2))
    assert sum(vertices) / 8 > 0.99
    assert sum(published) / 8 > 0.97


class Asymmetric(nn.Module):
    """Rises gently where the mean weight grows, and steeply far on the other side."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(400, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t = self.w.mean()
        return x * (0.1 * t + 10 * (-t - 0.5).clamp(min=0))


def test_the_opposite_of_sam_s_vertex_is_searched_too() -> None:
    """Random vertices have a mean near 0, where the gradient points to the lower of the two maxima."""
    data = Batches(torch.ones(4, 1).double(), torch.zeros(4), 2)
    for seed in range(3):
        found = worst_case_sharpness(Asymmetric(), mean_of, data, rho=1.0, p=math.inf, seed=seed)
        assert found.batches == pytest.approx((4.9, 4.9))


def test_a_step_too_far_is_halved() -> None:
    """Of a bend downwards the maximum is within the box: 1 − (w − 0.6)² for each weight."""

    class Hill(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (0.36 - (self.w - 0.6).square()).sum()

    data = Batches(torch.ones(2, 1).double(), torch.zeros(2), 2)
    found = worst_case_sharpness(Hill(), mean_of, data, rho=1.0, p=math.inf, search=Vertices(40))
    assert found.value == pytest.approx(3 * 0.36, rel=1e-3)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        out: torch.Tensor = self.last(x + self.second(x).relu())
        return out


NETWORKS: dict[str, tuple[Any, Any, float]] = {  # rows, a network for them, and its learning rate
    "digits, LayerNorm": (
        load_digits,
        lambda: nn.Sequential(nn.Linear(64, 40), nn.LayerNorm(40), nn.GELU(), nn.Linear(40, 10)),
        0.1,
    ),
    "digits, two hidden layers": (
        load_digits,
        lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 10)),
        0.1,
    ),
    "digits, convolution": (
        load_digits,
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
            nn.Linear(288, 10),
        ),
        0.1,
    ),
    "digits, residual": (load_digits, Residual, 0.05),
    "breast cancer": (
        load_breast_cancer, lambda: nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2)), 0.05,
    ),
    "wine": (load_wine, lambda: nn.Sequential(nn.Linear(13, 20), nn.Tanh(), nn.Linear(20, 3)), 0.05),
    "diabetes": (
        load_diabetes, lambda: nn.Sequential(nn.Linear(10, 32), nn.Softplus(), nn.Linear(32, 1)), 0.02,
    ),
}  # fmt: skip


def trained(name: str) -> tuple[nn.Module, Any, Batches]:
    """Return a network after 200 steps, its loss, and up to 256 of its rows in batches of 64."""
    torch.manual_seed(list(NETWORKS).index(name))
    rows, build, rate = NETWORKS[name]
    images, labels = rows(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32), torch.tensor(labels)
    net, loss_fn = build(), mse_loss if rows is load_diabetes else cross_entropy
    x = (x - x.mean(0)) / (x.std(0) + 1e-3) if rows is not load_digits else x / 16
    if rows is load_diabetes:
        y = ((y - y.mean()) / y.std()).float()[:, None]
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    for picked in torch.randint(min(1000, len(x)), (200, 64)):
        optimizer.zero_grad()
        loss_fn(net(x[picked]), y[picked]).backward()
        optimizer.step()
    return net.eval(), loss_fn, Batches(x[:256], y[:256], 64)


@pytest.mark.slow
def test_in_a_box_it_comes_near_a_far_longer_search_on_trained_networks() -> None:
    """Mean over networks, two geometries and two seeds, with no more than 21 gradients a batch."""
    shares: dict[str, list[float]] = {"vertices": [], "published": []}
    for name in NETWORKS:
        net, loss_fn, data = trained(name)
        for adaptive, rho in ((False, 0.02), (True, 0.1)):
            ball: dict[str, Any] = {"rho": rho, "p": math.inf, "adaptive": adaptive}
            strong = worst_case_sharpness(net, loss_fn, data, **ball, search=Vertices(150, 7))
            plain = worst_case_sharpness(net, loss_fn, data, **ball, search=AutoPGD())
            for seed in (0, 1):
                found = worst_case_sharpness(net, loss_fn, data, **ball, seed=seed)
                sizes = [len(y) for _, y in data]
                most = [max(them) for them in zip(found.batches, plain.batches, strong.batches, strict=True)]
                most_of_all = sum(n * rise for n, rise in zip(sizes, most, strict=True)) / sum(sizes)
                shares["vertices"].append(found.value / most_of_all)
                shares["published"].append(plain.value / most_of_all)
                assert found.cost.gradients <= plain.cost.gradients == 21
            print(name, ball["adaptive"], *(f"{one[-1]:.3f} {one[-2]:.3f}" for one in shares.values()))
    means = {name: sum(found) / len(found) for name, found in shares.items()}
    print(means, {name: min(found) for name, found in shares.items()})
    assert means["vertices"] >= 0.97
    assert means["published"] < means["vertices"] - 0.02


@pytest.mark.parametrize(("search", "gradients"), [(OneStep(), 2), (AutoPGD(3), 4), (Vertices(5), 6)])
def test_the_gradients_in_all_are_known_from_the_first(search: Search, gradients: int) -> None:
    told: list[tuple[Any, ...]] = []
    found = worst_case_sharpness(
        relu_net(), cross_entropy, labelled(), rho=0.1, p=math.inf, search=search,
        progress=lambda *steps: told.append(steps),
    )  # fmt: skip
    total = gradients * len(found.batches)
    assert told == [(done, total) for done in range(1, total + 1)]


def test_vertices_are_of_a_box() -> None:
    net, batches = relu_net(), labelled()
    with pytest.raises(UserError, match="p = 2 has no vertices"):
        worst_case_sharpness(net, cross_entropy, batches, rho=0.1, search=Vertices())
    with pytest.raises(UserError, match="takes at least 1"):
        Vertices(0)
    one = worst_case_sharpness(net, cross_entropy, batches, rho=0.1, p=math.inf, search=Vertices(1))
    sam = worst_case_sharpness(net, cross_entropy, batches, rho=0.1, p=math.inf, search=OneStep())
    assert one.value == pytest.approx(sam.value)
    assert one.cost.gradients == 2
