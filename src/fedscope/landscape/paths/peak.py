"""The highest point of a mean of curves, and what it is for the population that the curves are drawn from.

Curves e_i(t) of samples i, t in [0, 1], have the mean ē(t). Its maximum is biased upward as an estimate of
max E[e(t)], because t is chosen to fit the samples. Where t is chosen on one half of the samples and the mean
of the other half is taken there, both ways round, the estimate is biased downward. With the slope's variance
v/N at a peak of curvature −c both are of second order: + v/(2cN), and − 2v/(2cN), since a half has half the
samples. So (2·maximum + split)/3 has neither; where v is so large that a peak may be another one, it has less
of both. The combination is ours.

Near 0, where the curves end, neither is normal, nor known to be above it. The interval is of the largest
value at any point that was looked at, or 0, from the means m_j ± s_j at these points. Below: m_j − c·s_j of
the best of them, c the quantile of the largest of their joint errors, drawn with the correlations that the
samples have. Above: u_j of the best of them, as a maximum is beyond none of them only if it is beyond each
(Berger 1982), with P(m_j | u_j) = α·P(m_j | 0) (Read 2002), so that a curve that came out far below 0 leaves
some room above it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp, stdtrit
from torch import Tensor

_NEAR = 1e-3  # of [0, 1]: a peak is not told more closely
_DRAWS = 8192  # of joint errors


@dataclass(frozen=True)
class Peak:
    """Of curves of N samples, or of B batches."""

    height: float  # the maximum of the samples' mean, biased upward for the population
    at: float  # the t where it is
    split: Tensor  # (N,) float64: each sample's curve at the t that the other half chose
    curves: Tensor  # (P, N) float64: at all points that were looked at, without the ends


def unbiased(height: float, split: float) -> float:
    """Return the population's peak from the samples' and the mean of ``Peak.split``."""
    return (2 * height + split) / 3


Error = Callable[[Tensor], tuple[float, float]]
"""(N,) values ↦ their mean's standard error and its degrees of freedom."""


@dataclass(frozen=True)
class Reach:
    """Between what a population's peak is."""

    ends: tuple[float, float]
    curve: Tensor  # (N,) float64: at the point that the upper end is of


def reach(found: Peak, sizes: Tensor, error: Error, level: float = 0.95) -> Reach:
    """Return the interval of a peak of at least 0, see above; never [0, 0] where samples were drawn."""
    weights = sizes / sizes.sum()
    means = found.curves @ weights
    stderrs, dofs = torch.tensor([error(curve) for curve in found.curves], dtype=torch.float64).T
    if not bool(stderrs.isfinite().all() and means.isfinite().all()):
        return Reach((math.nan, math.nan), found.split)
    m, s, dof, tail = means.numpy(), stderrs.numpy(), dofs.numpy(), (1 - level) / 2
    drawn = s > 0
    wide = s * stdtrit(dof, tail) / ndtri(tail)  # so that a normal quantile is Student's
    scores = np.divide(m, wide, where=drawn, out=np.zeros_like(m))
    ends = np.where(drawn, m - wide * ndtri_exp(math.log(tail) + log_ndtr(scores)), m)
    most = _largest(found.curves - means[:, None], weights, 1 - tail)
    least = np.where(drawn, m - s * stdtrit(dof, ndtr(most)), m)
    low, best = max(0.0, float(least.max())), int(ends.argmax())
    return Reach((low, max(low, float(ends[best]))), found.curves[best])


def _largest(centred: Tensor, weights: Tensor, level: float) -> float:
    """Return a quantile of the largest of the means' standardised errors, of centred curves (P, N)."""
    scaled = centred * weights.sqrt()
    lengths = scaled.norm(dim=1)
    unit = scaled[lengths > 0] / lengths[lengths > 0, None]
    values, vectors = torch.linalg.eigh(unit @ unit.T)
    draws = torch.randn(_DRAWS, len(values), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = draws @ (vectors * values.clamp(min=0).sqrt()).T
    return float(errors.amax(1).quantile(level)) if len(values) else 0.0


def peak(
    curve: Callable[[float], Tensor],
    sizes: Tensor,
    *,
    points: int,
    steps: int,
    seed: int = 0,
) -> Peak:
    """Find the peak of a mean of curves, with as few evaluations as all three searches need together.

    Args:
        curve: t ↦ (N,) values; 0 at 0 and 1, where it is not evaluated.
        points: equidistant ones inside [0, 1] that are evaluated first. A peak narrower than their distance
            may be missed.
        steps: evaluations at most to refine the peak of each half, and of all.
    """
    known: dict[float, Tensor] = {end: torch.zeros(len(sizes), dtype=torch.float64) for end in (0.0, 1.0)}
    grid = [place / (points + 1) for place in range(points + 2)]
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(seed))
    halves = [order[: len(order) // 2], order[len(order) // 2 :]]

    def mean(rows: Tensor, t: float) -> float:
        if t not in known:
            known[t] = curve(t)
        return float((sizes[rows] * known[t][rows]).sum() / sizes[rows].sum())

    at = highest(partial(mean, order), grid, steps)
    split = torch.empty(len(sizes), dtype=torch.float64)
    for own, other in (halves, halves[::-1]):
        if len(own) and len(other):
            split[other] = known[highest(partial(mean, own), grid, steps)][other]
    if len(order) < 2:
        split.fill_(torch.nan)
    return Peak(mean(order, at), at, split, torch.stack([known[t] for t in sorted(known) if 0 < t < 1]))


def highest(value: Callable[[float], float], grid: Sequence[float], steps: int) -> float:
    """Return where a function is largest, of a grid and of the vertices of parabolas through its best points.

    The next point is the vertex through the best point and its neighbours, so that it lies between these; at
    an end of the grid it is the middle to the neighbour, once. A value that is no number ends the search.
    """
    known = {t: value(t) for t in grid}
    for _ in range(steps):
        best = _best(known)
        after = _next(known, best, 0.75 * (grid[1] - grid[0]))
        if math.isnan(known[best]) or after is None:
            break
        known[after] = value(after)
    return _best(known)


def _best(known: dict[float, float]) -> float:
    return max(known, key=lambda t: (math.isnan(known[t]), known[t]))


def _next(known: dict[float, float], best: float, coarse: float) -> float | None:
    places = sorted(known)
    at = places.index(best)
    if at in (0, len(places) - 1):
        other = places[1 if at == 0 else -2]
        return (best + other) / 2 if abs(other - best) > coarse else None
    down, up = best - places[at - 1], places[at + 1] - best
    before, after = known[best] - known[places[at - 1]], known[best] - known[places[at + 1]]
    bend = down * after + up * before
    if not 0 < bend < math.inf:
        return None
    vertex = best + (up**2 * before - down**2 * after) / (2 * bend)
    return None if abs(vertex - best) < _NEAR else vertex
