"""The coordinates along the axes of a slice."""

import math

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.surfaces.directions import Directions


def grid_values(
    directions: Directions, *, grid: int | tuple[int, ...] = 41, span: float = 1.0
) -> tuple[Tensor, ...]:
    """Return (m,) float64 coordinates for each axis.

    An axis runs over the directions' own range, ``span`` times as wide about its middle, or from −span to
    span where they have none. On a line the point nearest to each mark is moved to it, so that the ends of an
    interpolation are evaluated. A single point lies at the origin.
    """
    if not (math.isfinite(span) and span > 0):
        raise UserError(f"the span is {span}: all points would be one; take one above 0")
    axes = len(directions.vectors)
    sizes = (grid,) * axes if isinstance(grid, int) else grid
    if len(sizes) != axes or min(sizes) < 1:
        shape = "x".join(map(str, sizes))
        raise UserError(f"a grid of {shape} points does not fit {axes} axes; give each one point or more")
    limits = directions.limits or ((-1.0, 1.0),) * axes
    values = [_values(low, high, span, size) for (low, high), size in zip(limits, sizes, strict=True)]
    if axes == 1:
        _meet(values[0], [mark.at[0] for mark in directions.marks])
    return tuple(values)


def _values(low: float, high: float, span: float, size: int) -> Tensor:
    if size == 1:
        return torch.zeros(1, dtype=torch.float64)
    middle, half = (low + high) / 2, span * (high - low) / 2
    after = torch.arange(size, dtype=torch.float64)
    before = after.flip(0)
    # weights from both ends: an odd number of points has the middle itself
    return ((middle - half) * before + (middle + half) * after) / (size - 1)


def _meet(values: Tensor, marks: list[float]) -> None:
    for mark in marks:
        nearest = int((values - mark).abs().argmin())
        if values[0] <= mark <= values[-1]:
            values[nearest] = mark
