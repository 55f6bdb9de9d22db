"""Which points of a grid to evaluate so that the others can be interpolated to a stated error.

Each level of a hierarchy of grids has every second point of the next. A new point of a level is predicted
from the level before by cubic interpolation of log-losses. Where the prediction misses an evaluated point by
more than the tolerance, the next level is evaluated around it, elsewhere it is interpolated; the first two
levels are evaluated whole (after Harten's multiresolution, 1995). Then points drawn from those not evaluated
are: where one misses, its neighbourhood is evaluated, and more are drawn, until none does.

So the error that is stated was seen at points that had no part in the interpolation. The first draw is of m,
the k-th of m·(1 + ½ ln k): the share of interpolated points with a larger error is then below 4/m with a
confidence of 95 %, however many draws it took, since Σ_k exp(−4·(1 + ½ ln k)) = e⁻⁴·π²/6 = 3 %.

Points are next to each other on the grid, whatever their coordinates are. Where a loss is not finite nothing
can be interpolated: its border is refined to the grid's own width, and its inside, where all neighbours are
alike, is taken to be so too.
"""

import math
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter

Grid = NDArray[np.float64]
Mask = NDArray[np.bool_]
Evaluate = Callable[[Mask], Grid]
"""The points to evaluate, (m₀, m₁) ↦ losses there; entries elsewhere mean nothing."""

Level = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Which rows and which columns of the grid."""

_COARSE = 6  # points of the first level along an axis, about
_DRAWN = 0.03  # share of the points not evaluated that are drawn to check them
_FEWEST = 20


def refined(
    shape: tuple[int, int], evaluate: Evaluate, tol: float, *, needed: Mask | None = None
) -> tuple[Mask, float]:
    """Return which points were evaluated, and the largest relative error at the points drawn last.

    ``evaluate`` is called with new points only; ``tol`` is the relative error of the loss that is aimed at.
    """
    levels = hierarchy(shape)
    known, losses = np.zeros(shape, bool), np.full(shape, np.nan)

    def look(wanted: Mask) -> None:
        new = wanted & ~known
        if new.any():
            losses[new] = evaluate(new)[new]
            known[new] = True

    look(_at(shape, levels[min(1, len(levels) - 1)]))
    if needed is not None:
        look(needed)
    generator = np.random.default_rng(0)
    for draw in count(1):
        for level in range(2, len(levels)):
            look(_doubtful(losses, known, level, tol))
        rest = np.flatnonzero(~known)
        if not len(rest):
            break
        drawn = np.zeros(shape, bool)
        first = min(max(_FEWEST, round(_DRAWN * len(rest))), -(-len(rest) // 3))
        size = min(round(first * (1 + math.log(draw) / 2)), len(rest))
        drawn.flat[generator.choice(rest, size, replace=False)] = True
        guess = interpolated(losses, known)
        look(drawn)
        errors = np.where(drawn, relative_error(guess, losses), 0.0)
        if errors.max() <= tol:
            return known, float(errors.max())
        look(_grown(errors > tol, 2))
    return known, 0.0


def interpolated(values: Grid, known: Mask) -> Grid:
    """Return the grid with the values that are not ``known`` interpolated from those that are.

    It is logarithms that are interpolated, where all finite values are positive.
    """
    scale, back = _scaled(values, known)
    *_, (_, _, _, filled) = [(None, None, None, scale), *_ascent(scale, known)]
    result: Grid = np.where(known, values, back(filled))
    return result


def relative_error(guess: Grid, truth: Grid) -> Grid:
    """Return |guess − truth| / |truth|; 0 where neither is finite, infinite where one is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.abs(guess - truth) / np.abs(truth)
    error = np.where(guess == truth, 0.0, error)
    finite = np.isfinite(guess).astype(int) + np.isfinite(truth)
    result: Grid = np.select([finite == 2, finite == 1], [error, np.inf], 0.0)
    return result


def hierarchy(shape: tuple[int, ...]) -> list[Level]:
    """Return the levels, coarse to fine: which rows and which columns each has."""
    axes = []
    for size in shape:
        lists = [np.arange(size)]
        while len(lists[0]) > _COARSE:
            half = lists[0][::2]
            lists.insert(0, half if half[-1] == size - 1 else np.append(half, size - 1))
        axes.append(lists)
    depth = max(map(len, axes))
    rows, columns = ([lists[0]] * (depth - len(lists)) + lists for lists in axes)
    return list(zip(rows, columns, strict=True))


def _doubtful(losses: Grid, known: Mask, level: int, tol: float) -> Mask:
    """Return the level's points near one of the level before that was missed, or beside one not finite."""
    scale, back = _scaled(losses, known)
    steps = list(_ascent(scale, known))
    (middle, guess, _, _), (fine, _, torn, _) = steps[level - 2 : level]
    missed, beside = np.zeros(losses.shape, bool), np.zeros(losses.shape, bool)
    error = relative_error(back(guess), losses[np.ix_(*middle)])
    missed[np.ix_(*middle)] = known[np.ix_(*middle)] & (error > tol)
    beside[np.ix_(*fine)] = torn
    reach = max(int(np.diff(axis).max(initial=1)) for axis in middle)
    result: Mask = (_grown(missed, reach) | beside) & _at(losses.shape, fine)
    return result


def _ascent(values: Grid, known: Mask) -> Iterator[tuple[Level, Grid, Mask, Grid]]:
    """Yield each level after the first: its points, what the level before predicts there, where that has
    finite and other neighbours, and the prediction with known values in their places.
    """
    levels = hierarchy(known.shape)
    filled = values[np.ix_(*levels[0])]
    for coarse, fine in pairwise(levels):
        guess, torn = _predicted(filled, coarse, fine)
        filled = np.where(known[np.ix_(*fine)], values[np.ix_(*fine)], guess)
        yield fine, guess, torn, filled


def _predicted(values: Grid, coarse: Level, fine: Level) -> tuple[Grid, Mask]:
    """Interpolate from one level to the next: cubic where it can be, linear beside what is not finite."""
    finite = np.isfinite(values)
    clean = np.where(finite, values, 0.0)
    result = np.full([len(axis) for axis in fine], np.nan)
    for points in (2, 4):
        rows, columns = (_weights(c, f, points) for c, f in zip(coarse, fine, strict=True))
        usable, others = ((rows != 0).astype(int) @ mask @ (columns != 0).T for mask in (finite, ~finite))
        result = np.where(others == 0, rows @ clean @ columns.T, result)
        if points == 2:
            torn: Mask = (usable > 0) & (others > 0)
    return result, torn


def _weights(coarse: NDArray[np.intp], fine: NDArray[np.intp], points: int) -> Grid:
    """Return the (fine, coarse) matrix of Lagrange's interpolation through the nearest points."""
    weights = np.zeros((len(fine), len(coarse)))
    for i, at in enumerate(fine):
        right = int(np.searchsorted(coarse, at))
        if coarse[right] == at:
            weights[i, right] = 1
            continue
        first = min(max(right - points // 2, 0), max(len(coarse) - points, 0))
        nodes = range(first, min(first + points, len(coarse)))
        for j in nodes:
            factors = [(at - coarse[m]) / (coarse[j] - coarse[m]) for m in nodes if m != j]
            weights[i, j] = np.prod(factors)
    return weights


def _scaled(values: Grid, known: Mask) -> tuple[Grid, Callable[[Grid], Grid]]:
    """Return logarithms and the way back, if all finite values are positive; else the values."""
    if (values[known & np.isfinite(values)] <= 0).any():
        return values, lambda grid: grid
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.where(known, values, np.nan)), np.exp


def _at(shape: tuple[int, ...], level: Level) -> Mask:
    mask = np.zeros(shape, bool)
    mask[np.ix_(*level)] = True
    return mask


def _grown(mask: Mask, reach: int) -> Mask:
    grown: Mask = maximum_filter(mask, size=2 * reach + 1, mode="constant", cval=False)
    return grown
