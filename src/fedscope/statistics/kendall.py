"""Kendall's τ of few pairs, with an interval from the exact distribution of permutations.

The number K of discordant pairs of a random permutation of n is a sum of independent uniforms on
{0, …, i − 1}, i = 1 … n. Mallows' (1957) model tilts it by e^(−θK), which leaves the terms independent; in
it τ = 1 − 2K/N is the sufficient statistic. The interval holds the mean of τ at every θ that neither tail of
2.5 % rejects, as Clopper and Pearson (1934) do for a share: it leaves out 0 exactly where the permutation
test does, whatever the law.

Away from 0 a pair of variables has Mallows' spread only roughly. Of samples from normal and Clayton's
copulas with τ from 0 to 0.8 the interval holds the truth in 92 to 99 % of draws for n from 6 to 20. Where a
part of the runs follows a line and the others none, it is too narrow: 85 % at n = 8, τ = 0.6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TILT = 40.0  # largest |θ|: a neighbouring pair is then out of order with a probability of e^−40
_HALVINGS = 60


@dataclass(frozen=True)
class KendallTau:
    """τ of n pairs."""

    value: float  # 1 − 2K/N, a tie as half a discordant pair
    interval: tuple[float, float]  # 95 %, over both ways of every tie
    p: float  # of independence, two-sided, exact
    count: int  # n


def kendall_tau(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> KendallTau:
    """Return τ of paired numbers; NaN for fewer than three pairs, or where a number is NaN."""
    count, every = len(first), [*first, *second]
    if count < 3 or any(map(math.isnan, every)):
        return KendallTau(math.nan, (math.nan, math.nan), math.nan, count)
    a, b = np.asarray(first, float), np.asarray(second, float)
    upper = np.triu_indices(count, 1)
    order = (np.sign(a[:, None] - a) * np.sign(b[:, None] - b))[upper]
    discordant, ties, pairs = int((order < 0).sum()), int((order == 0).sum()), len(order)
    alpha, most = (1 - level) / 2, discordant + ties
    low = -1.0 if most == pairs else _mean(count, _tilt(count, most, alpha, below=True))
    high = 1.0 if discordant == 0 else _mean(count, _tilt(count, discordant, alpha, below=False))
    value = 1 - 2 * (discordant + ties / 2) / pairs
    return KendallTau(value, (low, high), _p_value(count, discordant, most), count)


def _law(count: int, theta: float) -> NDArray[np.float64]:
    """Return P(K = k), k = 0 … N."""
    law = np.ones(1)
    for size in range(2, count + 1):
        weights = np.exp(-theta * np.arange(size) + min(theta, 0.0) * (size - 1))
        law = np.convolve(law, weights / weights.sum())
    return law


def _mean(count: int, theta: float) -> float:
    law = _law(count, theta)
    return float(1 - 2 * (law @ np.arange(len(law))) / (len(law) - 1))


def _tilt(count: int, discordant: int, alpha: float, *, below: bool) -> float:
    """Return the θ at which K ≤ k has the probability α; with ``below`` False K ≥ k."""
    low, high = -_TILT, _TILT
    for _ in range(_HALVINGS):
        theta = (low + high) / 2
        law = _law(count, theta)
        # P(K ≤ k) grows with θ, P(K ≥ k) falls
        small = law[: discordant + 1].sum() < alpha if below else law[discordant:].sum() > alpha
        low, high = (theta, high) if small else (low, theta)
    return (low + high) / 2


def _p_value(count: int, least: int, most: int) -> float:
    law = _law(count, 0.0)
    middle = (len(law) - 1) / 2
    nearest = min(max(middle, least), most)
    k = int(nearest) if nearest <= middle else math.ceil(nearest)
    tail = min(float(law[: k + 1].sum()), float(law[k:].sum()))
    return min(1.0, 2 * tail)
