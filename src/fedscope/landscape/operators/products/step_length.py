"""Steps of finite differences: the one at which both errors balance, and pairs that tell a derivative.

The truncation of a central difference falls as ε², the rounding in it grows as 1/ε. How two differences with
steps ε and 2ε differ shows both. From the largest step down, that difference falls and then rises; the first
minimum is taken (Moré and Wild 2012 find steps of noisy functions so). Below it lies what must not be taken
for precision: a step too small to move rounded activations gives the same wrong difference each time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

_HALVINGS = 60
_KNOWN = 0.3  # relative difference below which a difference is known at all
_RISE = 4.0  # over the least one: rounding has taken over
_SAME = 1e-5  # relative distance of a derivative from a difference
_SETTLED = 0.1  # of the distance from a derivative, that two differences may be apart


@dataclass(frozen=True)
class DifferenceStep:
    """A step and what a difference with it gave along the direction it was found for."""

    length: float  # ε
    slope: Tensor  # (n,) float64: the difference
    error: float  # relative difference to that with twice the step


def balanced(difference: Callable[[float], Tensor], longest: float) -> DifferenceStep:
    """Return the step of least error, from ``longest`` down by halves, of differences along a unit vector."""
    length, coarse = longest, difference(longest)
    best = DifferenceStep(longest, coarse, math.inf)
    for _ in range(_HALVINGS):
        length /= 2
        fine = difference(length)
        size = float(fine.norm())
        error = float((coarse - fine).norm()) / size if size else 0.0
        if error < best.error:  # not where either is not finite
            best = DifferenceStep(length, fine, error)
        elif best.error < _KNOWN and not error < _RISE * best.error:
            break
        coarse = fine
    return best


def same(exact: Tensor, difference: Tensor) -> bool:
    """Say whether a derivative (n,) is what a difference (n,) shows, to 1e-5; both may be 0."""
    size = max(float(exact.norm()), float(difference.norm()))
    return float((exact - difference).norm()) <= _SAME * size  # never where one is not finite


def settles_elsewhere(
    exact: Tensor,
    difference: Callable[[float], Tensor],
    steps: Sequence[tuple[float, float]],
    room: float = 0,
) -> float:
    """Return how far from a derivative its differences settle, relative to the larger; 0: nowhere, or at it.

    Two differences that are nearer to each other than a tenth of their distance from ``exact`` have settled.
    Rounding, truncation and kinks leave them further apart, so that no size of any error need be known.
    """
    for pair in steps:
        first, second = map(difference, pair)
        if same(exact, first) or same(exact, second):
            return 0.0
        off = min(float((exact - found).norm()) for found in (first, second))
        if off > room and float((first - second).norm()) <= _SETTLED * off:  # not where one is not finite
            return off / max(float(exact.norm()), float(second.norm()))
    return 0.0
