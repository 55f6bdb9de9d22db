import math

import pytest
import torch
from torch import Tensor, nn

from fedscope.landscape import Batches, surface
from fedscope.landscape.surfaces.network_planes import Networks, line_between
from fedscope.landscape.surfaces.surface_results import barrier


class Weight(nn.Module):
    """One weight, which is also the output."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1).double())

    def forward(self, x: Tensor) -> Tensor:
        return self.w * x


def along(start: float, end: float, curve: object, grid: int = 41, span: float = 1.0) -> object:
    """The barrier of a loss of one weight between two of its values."""
    assert callable(curve)
    ends = [torch.tensor([end]).double() for end in (start, end)]
    line = line_between(Networks(ends, ["start", "end"], 1))
    batches = Batches(torch.ones(1, 1).double(), torch.zeros(1).double())
    return barrier(
        surface(Weight(), lambda out, _: curve(out).mean(), batches, directions=line, grid=grid, span=span)
    )


def well(w: Tensor) -> Tensor:
    return (w**2 - 1) ** 2


def test_between_two_wells_stands_a_barrier() -> None:
    found = along(-1, 1, well)
    assert (found.height, found.at) == (pytest.approx(1), pytest.approx(0.5))  # type: ignore[attr-defined]
    assert along(1, -1, well).height == pytest.approx(1)  # type: ignore[attr-defined]


def test_a_slope_and_a_valley_are_no_barrier() -> None:
    assert along(0, 3, lambda w: 5 * w).height == pytest.approx(0, abs=1e-12)  # type: ignore[attr-defined]
    assert along(-2, 3, lambda w: w**2).height == 0  # type: ignore[attr-defined]


def test_the_excess_is_over_the_line_between_unequal_ends() -> None:
    # well + 2w: 2 at the right end, −2 at the left, and the wells' barrier on top of that line
    found = along(-1, 1, lambda w: well(w) + 2 * w)
    assert (found.height, found.at) == (pytest.approx(1), pytest.approx(0.5))  # type: ignore[attr-defined]


def test_what_lies_beyond_the_ends_does_not_count() -> None:
    assert along(-1, 1, lambda w: 100 * torch.relu(w - 1)).height == 0  # type: ignore[attr-defined]


def test_without_both_ends_there_is_no_barrier() -> None:
    assert along(-1, 1, well, span=0.5) is None
    plane = surface(
        Weight(),
        nn.functional.mse_loss,
        Batches(torch.ones(1, 1).double(), torch.zeros(1, 1).double()),
        directions=(torch.ones(1), torch.ones(1)),
        grid=3,
    )
    assert barrier(plane) is None


def test_a_loss_that_is_not_finite_in_between_is_no_number() -> None:
    height = along(-1, 1, torch.log).height  # type: ignore[attr-defined]
    assert math.isnan(height)
