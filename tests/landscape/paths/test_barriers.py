import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, barrier, line_between, surface
from fedscope.landscape.paths.barriers import averaging_barrier, pair_barriers
from fedscope.landscape.paths.path_results import AveragingBarrier, PairBarriers
from fedscope.landscape.paths.sample_losses import SampleLosses
from fedscope.landscape.surfaces.network_planes import Networks
from fedscope.statistics.standard_errors import sample_error

from .nets import between, losses, network, samples, trained

INPUTS, TARGETS = samples(60, seed=9)
DATA = Batches(INPUTS, TARGETS, batch_size=20)


@pytest.fixture(scope="module")
def plain() -> tuple[nn.Module, list[dict[str, Tensor]]]:
    return trained(3)


@pytest.fixture(scope="module")
def found(plain: tuple[nn.Module, list[dict[str, Tensor]]]) -> PairBarriers:
    return pair_barriers(plain[0], cross_entropy, DATA, plain[1])


def test_heights_are_those_of_a_fine_grid(
    plain: tuple[nn.Module, list[dict[str, Tensor]]], found: PairBarriers
) -> None:
    model, states = plain
    grid = torch.linspace(0, 1, 401).tolist()
    assert float(found.heights.max()) > 0.1
    assert float(found.heights[0, 1]) == 0  # on the way between these two it is only lower
    for i, j in ((0, 1), (0, 2), (1, 2)):
        ends = [losses(model, state, INPUTS, TARGETS) for state in (states[i], states[j])]
        moved = [between(states[i], states[j], t) for t in grid]
        lines = [torch.lerp(ends[0], ends[1], t) for t in grid]
        curves = torch.stack([losses(model, state, INPUTS, TARGETS) for state in moved]) - torch.stack(lines)
        wanted = curves.mean(1)
        assert float(found.heights[i, j]) == pytest.approx(float(wanted.max()), rel=1e-3)
        assert float(found.at[i, j]) == pytest.approx(grid[int(wanted.argmax())], abs=0.02)
        assert float(found.losses[i]) == pytest.approx(float(ends[0].mean()), rel=1e-12)
        assert float(found.losses_stderr[i]) == pytest.approx(float(ends[0].std()) / 60**0.5, rel=1e-12)
        order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
        split = torch.empty(60, dtype=torch.float64)
        for own, other in ((order[:30], order[30:]), (order[30:], order[:30])):
            split[other] = curves[int(curves[:, own].mean(1).argmax())][other]
        value = (2 * float(wanted.max()) + float(split.mean())) / 3
        assert float(found.values[i, j]) == pytest.approx(value, rel=1e-2)
        low, high = found.estimate(i, j).interval()
        stderr = sample_error(split)[0] or (high - low) / 2 / 1.96
        assert float(found.stderr[i, j]) == pytest.approx(stderr, rel=2e-2)


@pytest.mark.parametrize("population", [80, 60])
def test_of_a_finite_population_less_is_left_to_chance(
    plain: tuple[nn.Module, list[dict[str, Tensor]]], found: PairBarriers, population: int
) -> None:
    """A quarter of the variances where 60 of 80 were taken, and of what the maximum is too high by."""
    left, data = 1 - 60 / population, Batches(INPUTS, TARGETS, batch_size=20, population=population)
    own = pair_barriers(plain[0], cross_entropy, data, plain[1])
    torch.testing.assert_close(own.heights, found.heights)
    torch.testing.assert_close(own.stderr[2], left**0.5 * found.stderr[2])
    assert float(own.stderr[0, 1]) <= left**0.5 * float(found.stderr[0, 1])  # of 0: from its interval
    torch.testing.assert_close(own.losses_stderr, left**0.5 * found.losses_stderr)
    torch.testing.assert_close(own.values - own.heights, left * (found.values - found.heights))
    assert own.mean.stderr == pytest.approx(left**0.5 * found.mean.stderr)


def test_heights_agree_with_the_barrier_of_a_surface(
    plain: tuple[nn.Module, list[dict[str, Tensor]]], found: PairBarriers
) -> None:
    model, states = plain
    flats = [torch.cat([tensor.reshape(-1) for tensor in state.values()]) for state in states[1:]]
    line = line_between(Networks(flats, ["one", "other"], len(flats[0])))
    other = barrier(surface(model, cross_entropy, DATA, directions=line, grid=101))
    assert other is not None
    assert float(found.heights[1, 2]) == pytest.approx(other.height, rel=1e-3)


def test_matrices_are_symmetric_and_their_mean_has_the_error_of_the_mean(found: PairBarriers) -> None:
    for matrix in (found.heights, found.values, found.stderr, found.dof, found.similarities):
        assert torch.equal(matrix, matrix.T)
    assert torch.allclose(found.at + found.at.T, 1 - torch.eye(3).double())
    off = ~torch.eye(3, dtype=torch.bool)
    assert found.mean.value == pytest.approx(float(found.values[off].mean()), rel=1e-12)
    errors = found.stderr[off]
    assert float(errors.norm()) / 6 < found.mean.stderr <= float(errors.mean())
    low, high = found.estimate(1, 2).interval()
    assert low < float(found.values[1, 2]) < high
    assert found.estimate(1, 1).interval() == (0, 0)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        ends = found.estimate(i, j).interval()
        assert ends == (float(found.low[i, j]), float(found.high[i, j]))
        assert 0 <= ends[0] < ends[1]
        assert found.estimate(i, j).stderr > 0
    low, high = found.mean.interval()
    assert float(found.low[off].mean()) <= low < found.mean.value < high <= float(found.high[off].mean())
    with pytest.raises(UserError, match=r"known at 0\.95 alone"):
        found.mean.interval(0.9)
    assert found.mean_height == pytest.approx(float(found.heights[off].mean()))


def test_what_it_costs(found: PairBarriers) -> None:
    assert found.points == 9
    assert 3 + 3 * 9 < found.passes <= 3 + 3 * (9 + 3 * 4)


@pytest.mark.parametrize("bn", ["eval", "recalibrate"])
def test_batchnorm_statistics_move_along_or_are_estimated_at_every_point(bn: str) -> None:
    model, states = trained(2, norm=True)
    found = pair_barriers(model, cross_entropy, DATA, states, bn=bn, points=3, steps=0)  # type: ignore[arg-type]
    curves = []
    for t in (0, 0.25, 0.5, 0.75, 1):
        state = between(states[0], states[1], t)
        if bn == "recalibrate":
            state = recalibrated(model, state)
        curves.append(losses(model, state, INPUTS, TARGETS))
    excess = [float((c - torch.lerp(curves[0], curves[-1], k / 4)).mean()) for k, c in enumerate(curves)]
    assert float(found.heights[0, 1]) == pytest.approx(max(excess), rel=1e-9)
    assert float(found.losses[0]) == pytest.approx(float(curves[0].mean()), rel=1e-9)
    assert found.passes == (2 + 3) * (1 if bn == "eval" else 2)


def recalibrated(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state whose one BatchNorm layer has the statistics of the batches, by PyTorch's own update."""
    own = network(norm=True)
    own.load_state_dict(state)
    torch.optim.swa_utils.update_bn([(inputs,) for inputs, _ in DATA], own)
    return dict(own.state_dict())


def test_the_average_of_several_networks(plain: tuple[nn.Module, list[dict[str, Tensor]]]) -> None:
    model, states = plain
    found = averaging_barrier(model, cross_entropy, DATA, states, weights=[1, 2, 1])
    p = torch.tensor([0.25, 0.5, 0.25]).double()
    mean = {
        name: torch.einsum("k,k...->...", p, torch.stack([s[name] for s in states])) for name in states[0]
    }
    own = torch.stack([losses(model, state, INPUTS, TARGETS) for state in states])
    gap = losses(model, mean, INPUTS, TARGETS) - p @ own
    assert found.value == pytest.approx(float(gap.mean()), rel=1e-9)
    assert [found.stderr, found.dof] == pytest.approx(list(sample_error(gap)))
    assert found.loss - found.mean_loss == pytest.approx(found.value)
    assert found.loss_stderr == pytest.approx(sample_error(losses(model, mean, INPUTS, TARGETS))[0])
    assert found.mean_loss_stderr == pytest.approx(sample_error(p @ own)[0])
    assert found.passes == 4
    low, high = found.interval()
    assert low < found.value < high


def test_the_average_of_two_is_the_middle_of_their_line(
    plain: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    model, states = plain
    middle = averaging_barrier(model, cross_entropy, DATA, states[:2])
    line = pair_barriers(model, cross_entropy, DATA, states[:2], points=1, steps=0)
    assert float(line.heights[0, 1]) == pytest.approx(max(0.0, middle.value), rel=1e-12)


def test_the_intervals_cover_the_population(plain: tuple[nn.Module, list[dict[str, Tensor]]]) -> None:
    """Of the average, over draws from the rows; that of a maximum stands in test_peak."""
    model, states = plain
    own = torch.stack([losses(model, state, INPUTS, TARGETS) for state in states[:2]])
    gap = losses(model, between(states[0], states[1], 0.5), INPUTS, TARGETS) - own.mean(0)
    inside = 0
    for draw in range(300):
        rows = torch.randint(60, (60,), generator=torch.Generator().manual_seed(draw))
        stderr, dof = sample_error(gap[rows])
        from_draw = averaging_interval(float(gap[rows].mean()), stderr, dof)
        inside += from_draw[0] <= float(gap.mean()) <= from_draw[1]
    assert 0.92 <= inside / 300 <= 0.98


def averaging_interval(value: float, stderr: float, dof: float) -> tuple[float, float]:
    nothing = torch.zeros(0)
    return AveragingBarrier(
        value, stderr, dof, 0.0, 0.0, 0.0, 0.0, nothing, nothing, "eval", 60, 0
    ).interval()


def test_a_whole_finite_population_has_its_own_height(
    plain: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    model, states = plain
    whole = pair_barriers(
        model, cross_entropy, Batches(INPUTS, TARGETS, batch_size=20, population=60), states[:2]
    )
    assert float(whole.values[0, 1]) == float(whole.heights[0, 1])
    assert float(whole.stderr[0, 1]) == 0


def test_a_loss_that_is_no_mean_over_samples_is_told_by_batches(
    plain: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    model, states = plain

    def spread(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets) + output.var()

    found = pair_barriers(model, spread, DATA, states[:2], points=3, steps=0)
    assert math.isfinite(float(found.heights[0, 1]))
    assert float(found.dof[0, 1]) <= 2


def test_a_loss_that_is_a_mean_in_the_first_batch_alone_is_told_by_batches(
    plain: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    """Weights of classes that lie together."""
    model, _ = plain
    order = TARGETS.argsort(stable=True)
    batches = Batches(INPUTS[order], TARGETS[order], batch_size=15)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 2.0]).double())
    found = SampleLosses(model.eval(), weighted, batches)
    assert found.sizes.tolist() == [15] * 4
    outputs = model(INPUTS[order]).detach().split(15)
    each = [float(weighted(o, t)) for o, t in zip(outputs, TARGETS[order].split(15), strict=True)]
    assert found.mean(found(found.center)) == pytest.approx(sum(each) / 4)


def test_what_is_not_finite_stays_so(plain: tuple[nn.Module, list[dict[str, Tensor]]]) -> None:
    model, states = plain

    def blown(output: Tensor, targets: Tensor) -> Tensor:
        return torch.where(output.detach().abs().sum() > 0, torch.nan, 1.0) * cross_entropy(output, targets)

    found = pair_barriers(model, blown, DATA, states[:2], points=1, steps=1)
    assert math.isnan(float(found.heights[0, 1]))
    assert all(map(math.isnan, found.estimate(0, 1).interval()))


def test_bad_requests_are_refused(plain: tuple[nn.Module, list[dict[str, Tensor]]]) -> None:
    model, states = plain
    with pytest.raises(UserError, match="give two networks"):
        pair_barriers(model, cross_entropy, DATA, states[:1])
    with pytest.raises(UserError, match="give two or more"):
        averaging_barrier(model, cross_entropy, DATA, states[:1])
    with pytest.raises(UserError, match="2 weights for 3 networks"):
        averaging_barrier(model, cross_entropy, DATA, states, weights=[1, 1])
    with pytest.raises(UserError, match="the networks differ"):
        pair_barriers(model, cross_entropy, DATA, [states[0], {"0.weight": torch.zeros(1)}])
    with pytest.raises(UserError, match="not finite"):
        bad = {**states[0], "0.bias": torch.full((4,), torch.nan).double()}
        pair_barriers(model, cross_entropy, DATA, [states[0], bad])


def test_of_all_there_is_in_one_batch_the_barrier_is_the_height(
    plain: tuple[nn.Module, list[dict[str, Tensor]]],
) -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    found = pair_barriers(plain[0], loss, Batches(INPUTS, TARGETS, 60, population=60), plain[1])
    assert float(found.heights.max()) > 0.1
    assert torch.equal(found.values, found.heights)
    assert found.mean.value == pytest.approx(found.mean_height)
