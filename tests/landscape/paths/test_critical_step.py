import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedscope.errors import UserError
from fedscope.landscape import Batches
from fedscope.landscape.paths.critical_sharpness import critical_sharpness, crossing, update_sharpness
from fedscope.landscape.paths.path_results import CriticalStep
from fedscope.statistics.standard_errors import sample_error

from .nets import losses, samples, trained

X = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(50, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def regression() -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """Return a linear model with its weights w, gradient g and Hessian H of the squared error."""
    torch.manual_seed(2)
    model = nn.Linear(6, 1, bias=False).double()
    w = model.weight.detach()[0]
    return model, w, 2 * X.T @ (X @ w - Y[:, 0]) / 50, 2 * X.T @ X / 50


def single(curve: object) -> object:
    assert callable(curve)
    return lambda step: torch.tensor([curve(step)], dtype=torch.float64)


def search(curve: object, guess: float = 1.0, tol: float = 0.01) -> tuple[float, float, int]:
    found = crossing(single(curve), lambda values: float(values[0]), guess=guess, tol=tol)  # type: ignore[arg-type]
    return found.low, found.high, found.steps


def test_on_a_quadratic_it_is_twice_the_squared_gradient_over_its_curvature() -> None:
    model, _, g, H = regression()
    (found,) = critical_sharpness(model, mse_loss, (X, Y), [-g], tol=1e-9)
    step = float(2 * g @ g / (g @ H @ g))
    assert found.step == pytest.approx(step, rel=1e-9)
    assert found.sharpness == pytest.approx(float(g @ H @ g / (g @ g)), rel=1e-9)
    assert found.distance == pytest.approx(step * float(g.norm()), rel=1e-9)
    top = float(torch.linalg.eigvalsh(H)[-1])
    assert found.sharpness < top
    vector = torch.linalg.eigh(H)[1][:, -1]
    along = -vector * torch.sign(vector @ g)
    (along_top,) = critical_sharpness(model, mse_loss, (X, Y), [along * (g @ vector).abs()], tol=1e-9)
    assert along_top.sharpness == pytest.approx(top, rel=1e-8)  # where the gradient is only along it


def test_along_any_update_it_is_the_directional_sharpness() -> None:
    model, _, g, H = regression()
    d = -g + 0.3 * torch.randn(6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    found, half = critical_sharpness(model, mse_loss, (X, Y), torch.stack([d, d / 2]), tol=1e-9)
    assert found.sharpness == pytest.approx(float(d @ H @ d / -(g @ d)), rel=1e-9)
    assert half.step == pytest.approx(2 * found.step, rel=1e-9)
    assert half.distance == pytest.approx(found.distance, rel=1e-9)


def test_a_quadratic_takes_two_steps_after_the_doublings() -> None:
    for guess, doublings in ((1.0, 3), (4.0, 2), (20.0, 4)):
        low, high, steps = search(lambda t: t * (t - 3.7), guess=guess)
        assert low < 3.7 < high
        assert 1 - low / high <= 0.01
        assert steps == doublings + 2, guess


def test_a_curve_that_is_none_is_halved() -> None:
    def wall(step: float) -> float:
        return -1.0 if step < 2.5 else math.inf

    low, high, steps = search(wall)
    assert low < 2.5 <= high
    assert 1 - low / high <= 0.01
    assert steps <= 3 + 7
    low, high, _ = search(lambda t: math.nan if t > 2.5 else -t)
    assert low <= 2.5 < high
    low, high, _ = search(lambda t: t**9 - 5 * t, tol=1e-6)
    assert (low + high) / 2 == pytest.approx(5 ** (1 / 8), rel=1e-6)


@pytest.mark.parametrize("guess", [0.01, 1.0, 50.0])
def test_it_lies_in_the_bracket_that_the_authors_program_returns(guess: float) -> None:
    """Theirs: the guess is doubled, or halved, until the sign changes, and the bracket halved to 1/16."""
    curves: tuple[Callable[[float], float], ...] = (
        lambda t: t * (t - 3.7),
        lambda t: math.exp(min(t, 99)) - 1 - 4 * t,
        lambda t: t**4 - 2 * t,
    )
    for curve in curves:
        step = guess
        rising = curve(step) < 0
        while (curve(step) < 0) == rising:
            step = 2 * step if rising else step / 2
        low, high = (step / 2, step) if rising else (step, 2 * step)
        while 1 - low / high > 1 / 16:
            middle = (low + high) / 2
            low, high = (low, middle) if curve(middle) > 0 else (middle, high)
        ours = search(curve, guess=guess, tol=1e-6)
        assert low <= ours[0] < ours[1] <= high
        assert search(curve, guess=guess, tol=0.01)[2] <= 12 + abs(math.log2(guess))


def test_a_fall_within_the_rounding_is_bracketed_by_a_step_that_is_above() -> None:
    curve = single(lambda step: -0.35 * step + 0.5 * step**2)  # falls by 0.061, crosses at 0.7
    found = crossing(curve, lambda values: float(values[0]), guess=1.0, tol=0.01, rounding=0.053)  # type: ignore[arg-type]
    assert found.low < 0.7 < found.high


def test_the_first_crossing_on_the_doubled_steps_is_the_one_returned() -> None:
    low, high, _ = search(lambda t: -(t - 3) * (t - 5) * (t - 9) * -1, guess=0.5)  # above 0 between 3 and 5
    assert low < 3 < high


def test_a_loss_that_rises_at_once_or_never_has_no_step() -> None:
    assert search(lambda t: t)[:2] == (0.0, 0.0)
    assert search(lambda t: -t)[:2] == (math.inf, math.inf)
    model, _, g, _ = regression()
    (up,) = critical_sharpness(model, mse_loss, (X, Y), [g])
    assert (up.step, up.sharpness) == (0, math.inf)
    assert all(map(math.isnan, up.interval()))
    (down,) = critical_sharpness(model, lambda out, _: out.mean(), (X, Y), [-X.mean(0)])
    assert (down.step, down.sharpness) == (math.inf, 0)


def test_the_error_is_that_of_the_zero_of_the_mean_excess() -> None:
    model, w, g, H = regression()
    (found,) = critical_sharpness(model, mse_loss, (X, Y), [-g], tol=1e-6)
    before, after = (X @ w - Y[:, 0]).square(), (X @ (w - found.step * g) - Y[:, 0]).square()
    slope = float(-g @ g + found.step * g @ H @ g)
    stderr, dof = sample_error(after - before)
    assert found.stderr == pytest.approx(stderr / slope, rel=1e-4)
    assert found.dof == pytest.approx(dof, rel=1e-4)
    low, high = found.interval(0.5)
    assert found.sharpness_interval(0.5) == pytest.approx((2 / high, 2 / low))
    assert found.interval()[0] < 0
    assert found.sharpness_interval()[1] == math.inf


def test_intervals_cover() -> None:
    """Of regressions on draws, along an update that does not depend on them, whose population is known."""
    weights, d, inside = torch.tensor([0.5, -1.0]).double(), torch.tensor([-0.6, 1.1]).double(), 0
    scales = torch.tensor([1.0, 2.0]).double()
    truth = float(2 * (-(2 * scales**2 * weights) @ d) / (d @ (2 * scales**2 * d)))
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        x = scales * torch.randn(60, 2, generator=generator, dtype=torch.float64)
        noise = torch.randn(60, generator=generator, dtype=torch.float64)

        def excess(step: float, x: Tensor = x, noise: Tensor = noise) -> Tensor:
            return (x @ (weights + step * d) - noise).square() - (x @ weights - noise).square()

        found = crossing(excess, lambda values: float(values.mean()), guess=1.0, tol=1e-3)
        assert found.at_high is not None
        stderr, dof = sample_error(found.at_high)
        one = CriticalStep(found.middle, (found.low, found.high), stderr / found.slope, dof, 1.0, found.steps)
        low, high = one.interval()
        first, last = one.sharpness_interval()
        inside += low <= truth <= high
        assert (first <= 2 / truth <= last) == (low <= truth <= high)
    print(f"coverage {inside / 300:.3f}")
    assert 0.92 <= inside / 300 <= 0.98


@pytest.fixture(scope="module")
def trained_clients() -> tuple[nn.Module, list[dict[str, Tensor]]]:
    model, (start, *_) = trained(1, steps=5)
    model.load_state_dict(start)
    states = []
    for seed in range(3):
        own = copy.deepcopy(model)
        own.load_state_dict(start)
        inputs, targets = samples(seed=seed)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.3)
        for _ in range(10):
            optimizer.zero_grad()
            cross_entropy(own(inputs), targets).backward()
            optimizer.step()
        states.append({name: tensor.detach().clone() for name, tensor in own.state_dict().items()})
    model.load_state_dict(start)
    return model, states


def test_a_round_has_a_step_for_the_server_and_each_client(
    trained_clients: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    model, states = trained_clients
    inputs, targets = samples(60, seed=9)
    found = update_sharpness(
        model, cross_entropy, Batches(inputs, targets, batch_size=20), states, weights=[1, 2, 1]
    )
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    p = [0.25, 0.5, 0.25]
    mean = {
        name: sum(share * (state[name] - start[name]) for share, state in zip(p, states, strict=True))
        for name in start
    }
    updates = [mean, *({name: state[name] - start[name] for name in start} for state in states)]
    before = float(losses(model, start, inputs, targets).mean())
    for one, update in zip((found.server, *found.clients), updates, strict=True):
        ends = [
            float(losses(model, {n: start[n] + step * update[n] for n in start}, inputs, targets).mean())
            for step in one.bracket
        ]
        assert ends[0] <= before < ends[1]
        assert 1 - one.bracket[0] / one.bracket[1] <= 0.01
    assert found.loss == pytest.approx(before)
    assert found.passes == 1 + sum(one.steps for one in (found.server, *found.clients))
    assert found.weights.tolist() == p


def test_what_is_not_finite_stays_so() -> None:
    model, _, g, _ = regression()
    (found,) = critical_sharpness(model, lambda out, y: (out * torch.nan).mean(), (X, Y), [-g])
    assert math.isnan(found.step)
    assert math.isnan(found.sharpness)


def test_bad_requests_are_refused() -> None:
    model, _, g, _ = regression()
    with pytest.raises(UserError, match="update 0 has shape"):
        critical_sharpness(model, mse_loss, (X, Y), [g[:2]])
    with pytest.raises(UserError, match="update 1 is zero"):
        critical_sharpness(model, mse_loss, (X, Y), [g, 0 * g])
    with pytest.raises(UserError, match="give a step above 0"):
        critical_sharpness(model, mse_loss, (X, Y), [g], guess=0)
    with pytest.raises(UserError, match="round without clients"):
        update_sharpness(model, mse_loss, (X, Y), [])


def test_a_rise_within_the_rounding_of_the_losses_is_no_fall() -> None:
    model, _, g, _ = regression()
    single_precision = copy.deepcopy(model).float()
    (found,) = critical_sharpness(single_precision, mse_loss, (X.float(), Y.float()), [g])
    assert found.step == 0  # uphill: the loss rises at once
    low, high, _ = search(lambda t: t * (t - 0.5))  # the first halving is at the zero itself
    assert low <= 0.5 <= high


def test_a_mean_update_within_the_rounding_of_the_weights_has_no_step() -> None:
    model, w, g, _ = regression()
    opposite = [{"weight": (w + sign * g)[None]} for sign in (1, -1)]
    found = update_sharpness(model, mse_loss, (X, Y), opposite)
    assert math.isnan(found.server.step)
    assert [math.isfinite(one.step) for one in found.clients] == [True, True]


def test_half_the_bracket_stands_at_both_ends_of_the_interval() -> None:
    exact = CriticalStep(1.0, (0.94, 1.06), stderr=0.0, dof=9, length=2.0, steps=5)
    assert exact.interval() == pytest.approx((0.94, 1.06))
    drawn = CriticalStep(1.0, (0.94, 1.06), stderr=0.1, dof=math.inf, length=2.0, steps=5)
    assert drawn.interval() == pytest.approx((1 - 0.06 - 0.196, 1 + 0.06 + 0.196), abs=1e-4)


def test_an_update_within_the_rounding_of_large_weights_has_no_step() -> None:
    model, _, g, _ = regression()
    large = 100.0
    for p in model.parameters():
        p.data *= large / p.data.norm()
    rounding = large * torch.finfo(torch.float64).eps
    within, beyond = critical_sharpness(
        model, mse_loss, (X, Y), [k * rounding * g / g.norm() for k in (0.5, 8)]
    )
    assert math.isnan(within.distance)
    assert (within.steps, beyond.steps > 0) == (0, True)
