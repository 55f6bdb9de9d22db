"""Several verdicts at once: p-values adjusted for their number."""

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values of a family of m tests, in the order given.

    Rejecting where they are at most α rejects one true hypothesis or more with a probability of at most α,
    however the tests depend on each other: the i-th smallest is multiplied by m − i + 1. NaN stays NaN and
    counts for none.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, least = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[place] = least
    return adjusted
