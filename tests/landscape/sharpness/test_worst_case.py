import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.choices import ReadingName
from fedscope.errors import UserError
from fedscope.landscape import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.sharpness.geometry import Geometry
from fedscope.landscape.sharpness.objective import Perturbed
from fedscope.landscape.sharpness.results import Cost, Sharpness
from fedscope.landscape.sharpness.searches import AutoPGD, OneStep, _Halvings, checkpoints
from fedscope.landscape.sharpness.worst_case import worst_case_sharpness
from fedscope.statistics.intervals import data_stderr
from tests.landscape.sharpness.authors import worst_rise
from tests.landscape.sharpness.cases import (
    Quadratic,
    labelled,
    matrix_of,
    mean_of,
    quadratic,
    relu_net,
)


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


def test_the_interval_over_batches_covers_the_mean_over_all_batches() -> None:
    """A batch's exact ρ²λ_max/2 for A_b of one random entry: the mean of all batches is known."""
    g, hits = torch.Generator().manual_seed(2), 0
    for _ in range(300):
        curvatures = torch.empty(16, 8, dtype=torch.float64).exponential_(generator=g).mean(1)
        rises = (0.5 * curvatures).tolist()
        stderr = data_stderr(torch.tensor(rises, dtype=torch.float64), (8,) * 16)
        found = Sharpness(sum(rises) / 16, 0.0, stderr, Cost(), 0, dof_data=15)
        low, high = found.population_interval()
        hits += low <= 0.5 <= high
    assert 0.92 <= hits / 300 <= 0.98


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
