"""Adaptive grids against the full ones."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.landscape import Batches, Surface, surface
from fedscope.landscape.surfaces.adaptive import Grid, Mask, hierarchy, interpolated, refined
from fedscope.landscape.surfaces.network_planes import Networks, line_between
from tests import tiers

Function = Callable[[Grid, Grid], Grid]
SMOOTH: dict[str, Function] = {
    "valley": lambda x, y: 0.1 + 3 * x**2 + y**2,
    "wall": lambda x, y: 1 + 0.2 * np.sin(5 * x) + np.exp(3 * y),
    "kink": lambda x, y: 1 + np.abs(x - 0.13) + 0.1 * y,
    "negative": lambda x, y: x**3 - y - 5,
}


def _sampled(function: Function, shape: tuple[int, int]) -> Grid:
    rows, columns = (np.linspace(-1, 1, size) if size > 1 else np.zeros(1) for size in shape)
    return function(*np.meshgrid(rows, columns, indexing="ij"))


def _run(truth: Grid, tol: float) -> tuple[Mask, float, Grid]:
    asked = np.zeros(truth.shape, int)

    def evaluate(wanted: Mask) -> Grid:
        asked[wanted] += 1
        return np.where(wanted, truth, 1e9)

    known, error = refined(truth.shape, evaluate, tol)
    assert (asked == known).all()  # each once
    return known, error, interpolated(np.where(known, truth, np.nan), known)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("shape", [(41, 41), (40, 57), (101, 1), (64, 2)])
def test_smooth_surfaces_take_fewer_points(name: str, shape: tuple[int, int]) -> None:
    truth = _sampled(SMOOTH[name], shape)
    known, stated, full = _run(truth, 0.01)
    error = np.abs(full - truth) / np.abs(truth)
    assert error.max() < 0.02
    assert stated <= 0.01
    assert (error > 0.01).mean() < 0.02
    assert known.mean() < (0.75 if min(shape) > 2 else 0.9)


@settings(max_examples=tiers.examples(30), deadline=None)
@given(
    rows=st.integers(1, 30),
    columns=st.integers(1, 30),
    border=st.floats(-2, 2),
    value=st.sampled_from([np.nan, np.inf]),
)
def test_where_it_is_not_finite_is_found_exactly(
    rows: int, columns: int, border: float, value: float
) -> None:
    truth = _sampled(lambda x, y: np.where(x + 0.5 * y > border, value, 3 + x + y), (rows, columns))
    _, _, full = _run(truth, 0.02)
    assert (np.isfinite(full) == np.isfinite(truth)).all()
    finite = np.isfinite(truth)
    assert np.abs(full[finite] / truth[finite] - 1).max(initial=0) < 0.06


def test_noise_is_evaluated_everywhere() -> None:
    truth = 1 + np.random.default_rng(0).random((23, 31))
    known, stated, full = _run(truth, 0.01)
    assert known.all()
    assert stated == 0
    assert (full == truth).all()


def test_every_draw_that_found_a_miss_is_followed_by_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, rests = list[int](), list[int]()

    class Counting:
        def __init__(self, seed: int) -> None:
            self.own = np.random.Generator(np.random.PCG64(seed))

        def choice(self, rest: Grid, size: int, *, replace: bool) -> Grid:
            rests.append(len(rest))
            sizes.append(size)
            return self.own.choice(rest, size, replace=replace)

    monkeypatch.setattr(np.random, "default_rng", Counting)
    spikes = np.random.Generator(np.random.PCG64(1)).random((41, 41)) < 0.02  # each seen by who hits it alone
    _run(np.where(spikes, 1.5, 1.0), 0.01)
    firsts = [max(20, round(0.03 * rest)) for rest in rests]
    assert len(sizes) > 3
    assert sizes == [round(m * (1 + math.log(k) / 2)) for k, m in enumerate(firsts, 1)]


def test_a_lines_ends_are_evaluated_whatever_the_grid() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    batches = Batches(torch.randn(9, 5), torch.randint(3, (9,)))
    ends = 0.1 * torch.randn(2, 75).double()
    line = line_between(Networks(list(ends), ["a", "b"], 75))
    for grid in (30, 51, 61):
        found = surface(model, cross_entropy, batches, directions=line, grid=grid, adaptive=0.1)
        assert found.computed is not None
        evaluated = found.axes[0].values[found.computed]
        assert {0.0, 1.0} <= set(evaluated.tolist())


@settings(max_examples=tiers.examples(), deadline=None)
@given(rows=st.integers(1, 70), columns=st.integers(1, 70))
def test_levels_are_nested_and_end_in_the_grid(rows: int, columns: int) -> None:
    levels = hierarchy((rows, columns))
    for axis, size in ((0, rows), (1, columns)):
        assert (levels[-1][axis] == np.arange(size)).all()
        for coarse, fine in pairwise(levels):
            assert set(coarse[axis]) <= set(fine[axis])
            assert {0, size - 1} <= set(coarse[axis])


def test_a_networks_surface_within_its_stated_error() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = Batches(torch.randn(40, 5), torch.randint(3, (40,)), 40)
    directions = tuple(torch.randn(2, 75))

    def evaluated(adaptive: float | None) -> Surface:
        return surface(
            model, cross_entropy, batches, directions=directions, grid=(33, 40), metrics=["accuracy"],
            adaptive=adaptive,
        )  # fmt: skip

    whole, some = evaluated(None), evaluated(0.02)
    assert some.computed is not None
    assert torch.equal(some.loss[some.computed], whole.loss[some.computed])
    error = (some.loss / whole.loss - 1).abs()
    assert float(error.max()) < 0.06
    assert some.interpolation_error is not None
    assert float(error.median()) < some.interpolation_error <= 0.02
    assert float(some.computed.double().mean()) < 0.5
    assert float((some.metrics["accuracy"] - whole.metrics["accuracy"]).abs().max()) < 0.15
    assert whole.computed is None
    assert whole.interpolation_error is None


def test_points_are_chosen_by_the_loss() -> None:
    """And by nothing else that is measured there: its error, say, which is rougher."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(2, 3), torch.randn(20, 2)
    batches = Batches(inputs, torch.randint(3, (20,)), 20)
    line = (torch.linspace(-2, 2, 9, dtype=torch.float64),)
    full = surface(model, cross_entropy, batches, directions=line, grid=41).loss.numpy()[:, None]
    found = surface(
        model, cross_entropy, batches, directions=line, grid=41, adaptive=0.01, metrics=["accuracy"]
    )
    known, _ = refined(full.shape, lambda wanted: np.where(wanted, full, 1e9), 0.01)
    assert found.computed is not None
    assert found.computed.tolist() == known[:, 0].tolist()
