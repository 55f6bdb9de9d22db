"""How a sum concentrates on few of its parts: the share of the largest ones, of groups, and of all in turn.

The parts q_1, …, q_N are real; some may be negative. A share is the sum of some parts over the sum of all,
Σ_{i∈S} q_i / Σ_i q_i, so that the shares of disjoint sets add up to 1; where parts are negative the largest
ones may have a share above 1. Where the sum is not positive there are no shares: NaN.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

LARGEST = 0.01  # of all parts: those whose share is told

Name = TypeVar("Name")


@dataclass(frozen=True)
class GroupShare:
    """What a group of the parts contributes to the sum."""

    count: int  # parts in the group
    share: float
    stderr: float  # of the share, over draws of the samples that the parts are of
    mean: float  # of the group's parts


def ranked(parts: Sequence[float]) -> list[int]:
    return sorted(range(len(parts)), key=lambda i: -parts[i])


def top_share(parts: Sequence[float]) -> tuple[int, float]:
    """Return how many parts the largest hundredth of them is, ⌈``LARGEST``·N⌉, and their share."""
    count = math.ceil(round(LARGEST * len(parts), 9))  # 0.01·700 is 7.000000000000001
    return count, share_of(parts, ranked(parts)[:count])


def shares(parts: Sequence[float]) -> list[float]:
    total = math.fsum(parts)
    return [part / total if total > 0 else math.nan for part in parts]


def share_of(parts: Sequence[float], chosen: Sequence[int]) -> float:
    total = math.fsum(parts)
    return math.fsum(parts[i] for i in chosen) / total if total > 0 else math.nan


def group_shares(
    parts: Sequence[float], groups: Mapping[Name, Sequence[int]], finite: float = 1.0
) -> dict[Name, GroupShare]:
    """Return the share of each group of positions, the largest share first; groups may overlap.

    A share s of a group g is a ratio of two means over samples. Its standard error is to first order that of
    the mean of e_i = q_i·(1_{i∈g} − s) over the mean of the q_i (Cochran 1977, section 2.11): of another draw
    of samples along the same eigenvector. NaN for fewer than two parts. ``finite``: the factor of a finite
    population on variances.
    """
    count, total, squares = len(parts), math.fsum(parts), math.fsum(q * q for q in parts)
    known = count > 1 and total > 0
    found = {}
    for name, chosen in groups.items():
        own = [parts[i] for i in chosen]
        share = math.fsum(own) / total if total > 0 else math.nan
        spread = share**2 * squares + (1 - 2 * share) * math.fsum(q * q for q in own)  # Σ e_i²
        variance = finite * max(spread, 0.0) * count / (count - 1) if known else math.nan
        stderr = math.sqrt(variance) / total if known else math.nan
        mean = math.fsum(own) / len(own) if own else math.nan
        found[name] = GroupShare(len(own), share, stderr, mean)
    return dict(sorted(found.items(), key=lambda item: -item[1].share))


def cumulative_shares(parts: Sequence[float]) -> list[float]:
    """Return the share (N,) of the largest part, of the two largest, and so on to that of all, 1."""
    own = shares(parts)
    return list(accumulate(own[i] for i in ranked(parts)))
