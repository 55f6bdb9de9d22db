import math

import pytest
import torch
from torch import Tensor

from fedscope.landscape.paths.peak import highest, peak, reach, unbiased
from fedscope.statistics.standard_errors import interval, sample_error

ONES = torch.ones(50, dtype=torch.float64)


def test_a_parabola_is_met_at_its_vertex() -> None:
    seen: list[float] = []

    def value(t: float) -> float:
        seen.append(t)
        return 1 - (t - 0.437) ** 2

    assert highest(value, [0, 0.25, 0.5, 0.75, 1], 4) == pytest.approx(0.437, abs=1e-9)
    assert len(seen) == 6  # the grid and the vertex, beside which nothing else would be told


def test_a_smooth_peak_is_found_with_few_evaluations() -> None:
    seen: list[float] = []

    def value(t: float) -> float:
        seen.append(t)
        return math.exp(-((t - 0.3137) ** 2) / 0.02)

    best = highest(value, [place / 10 for place in range(11)], 4)
    assert value(best) == pytest.approx(1, abs=2e-4)
    assert len(seen) <= 16


def test_a_peak_at_an_end_is_looked_for_once_beside_it() -> None:
    seen: list[float] = []

    def value(t: float) -> float:
        seen.append(t)
        return -t

    assert highest(value, [0, 0.5, 1], 9) == 0
    assert seen == [0, 0.5, 1, 0.25]


def test_what_is_no_number_is_the_peak() -> None:
    assert highest(lambda t: math.nan if t == 0.5 else t, [0, 0.5, 1], 3) == 0.5
    assert highest(lambda t: math.inf if t == 0.5 else t, [0, 0.5, 1], 3) == 0.5


def test_each_half_is_read_where_the_other_has_its_peak() -> None:
    centers = torch.cat([torch.full((25,), 0.3), torch.full((25,), 0.6)]).double()
    evaluations: list[float] = []

    def curve(t: float) -> Tensor:
        evaluations.append(t)
        return 4 * t * (1 - t) - (t - centers) ** 2

    found = peak(curve, ONES, points=9, steps=3, seed=1)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    for own, other in ((order[:25], order[25:]), (order[25:], order[:25])):
        top = (4 + 2 * float(centers[own].mean())) / 10  # of 4t(1 − t) − (t − c)², averaged
        assert torch.allclose(
            found.split[other], 4 * top * (1 - top) - (top - centers[other]) ** 2, atol=1e-9
        )
    assert found.at == pytest.approx((4 + 2 * 0.45) / 10)
    assert found.height == pytest.approx(float(curve(found.at).mean()))
    assert len(set(evaluations)) == len(evaluations) - 1 <= 9 + 3 * 3  # each once; and here, by this test


def test_unequal_weights_count() -> None:
    sizes = torch.tensor([1.0, 3.0], dtype=torch.float64)
    slopes = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = peak(
        lambda t: slopes * 0 + t * (1 - t) * torch.tensor([1.0, 2.0]).double(), sizes, points=1, steps=0
    )
    assert [found.height, found.at] == pytest.approx([0.25 * 7 / 4, 0.5])


def test_one_sample_has_no_halves() -> None:
    found = peak(lambda t: torch.full((1,), t * (1 - t)).double(), ONES[:1], points=3, steps=0)
    assert found.height == 0.25
    assert found.split.isnan().all()


@pytest.mark.parametrize("scale", [0.03, 0.3, 1.0])
def test_the_estimate_has_no_bias_to_speak_of_and_its_interval_covers(scale: float) -> None:
    """Noisy curves whose truth is known, from a peak that is plain to one that is lost among others."""
    draws, count, truth, waves = 300, 80, 1.0, torch.arange(1, 9, dtype=torch.float64)
    found: dict[str, list[float]] = {"value": [], "height": [], "split": []}
    inside = reached = 0
    for draw in range(draws):
        generator = torch.Generator().manual_seed(draw)
        noise = scale * torch.randn(count, 8, generator=generator, dtype=torch.float64)
        tops = 1 + 0.5 * torch.randn(count, generator=generator, dtype=torch.float64)

        def curve(t: float, noise: Tensor = noise, tops: Tensor = tops) -> Tensor:
            return tops * (1 - (2 * t - 1) ** 2) + noise @ torch.sin(math.pi * waves * t)

        top = peak(curve, torch.ones(count, dtype=torch.float64), points=9, steps=4, seed=draw)
        split, (stderr, dof) = float(top.split.mean()), sample_error(top.split)
        value = unbiased(top.height, split)
        for name, number in (("value", value), ("height", top.height), ("split", split)):
            found[name].append(number - truth)
        low, high = interval(value, stderr, dof)
        inside += low <= truth <= high
        ends = reach(top, torch.ones(count, dtype=torch.float64), sample_error).ends
        reached += ends[0] <= truth <= ends[1]
    bias = {name: float(torch.tensor(errors).mean()) for name, errors in found.items()}
    print(f"coverage {inside / draws:.3f}", bias)
    assert 0.92 <= inside / draws <= 0.98
    assert reached / draws >= 0.92
    assert bias["split"] < bias["value"] < bias["height"]


@pytest.mark.parametrize("spread", [0.0, 0.4])
@pytest.mark.parametrize("bump", [0.0, 0.5, 1.0, 2.0])
def test_intervals_hold_near_0_and_are_never_empty(bump: float, spread: float) -> None:
    """``bump`` standard errors high; ``spread``: of what else moves the curves, at their quarters."""
    draws, count, inside, empty, halves, waves = 200, 64, 0, 0, list[float](), torch.arange(1, 4).double()
    truth = bump / count**0.5
    for draw in range(draws):
        generator = torch.Generator().manual_seed(1000 + draw)
        tops = truth + torch.randn(count, generator=generator, dtype=torch.float64)
        noise = spread * torch.randn(count, 3, generator=generator, dtype=torch.float64)

        def curve(t: float, noise: Tensor = noise, tops: Tensor = tops) -> Tensor:
            return tops * 4 * t * (1 - t) + noise @ torch.sin(2 * math.pi * waves * t)

        ones = torch.ones(count, dtype=torch.float64)
        low, high = reach(peak(curve, ones, points=9, steps=4, seed=draw), ones, sample_error).ends
        inside += low <= truth <= high
        empty += low == high
        halves.append((high - low) / 2)
    print(f"coverage {inside / draws:.3f}")
    assert empty == 0
    assert inside / draws >= 0.92
    assert sorted(halves)[draws // 2] <= 1.4 * 1.96 / count**0.5


def test_a_curve_far_below_0_leaves_less_room_above_it_the_lower_it_is() -> None:
    ones, deep = torch.ones(64, dtype=torch.float64), list[float]()
    values = torch.linspace(-1, 1, 64, dtype=torch.float64)
    for depth in (0.1, 1.0, 10.0):

        def curve(t: float, depth: float = depth) -> Tensor:
            return (values - depth) * t * (1 - t)

        found = reach(peak(curve, ones, points=3, steps=0), ones, sample_error)
        assert found.ends[0] == 0
        deep.append(found.ends[1])
    assert deep == sorted(deep, reverse=True)
    assert 0 < deep[-1] < 0.05 * deep[0]


def test_without_a_sampling_error_the_interval_is_the_peak() -> None:
    top = peak(lambda t: ONES * t * (1 - t), ONES, points=3, steps=0)
    found = reach(top, ONES, lambda curve: (0.0, 49.0))
    assert found.ends == pytest.approx((0.25, 0.25))
