"""Which estimates are resolved: those that lie in their range and whose interval leaves some of it out.

Noise can carry an unbiased estimate out of what its quantity can be, a squared norm below 0 or a cosine
beyond ±1, or make its interval so wide that nothing is excluded. Such a number is kept in the record, with
``"resolved": false`` beside it, and shown as "unresolved". An estimate in its range whose interval excludes
something is resolved, however wide the interval.
"""

import math
from collections.abc import Sequence

UNRESOLVED = "unresolved"
_ROUNDING = 1e-6  # of products in float32, beyond an end of the range and relative to it


def is_resolved(
    value: float | None, interval: Sequence[float] | None, low: float = -math.inf, high: float = math.inf
) -> bool:
    """Say whether an estimate of a quantity between ``low`` and ``high`` says anything about it.

    ``value`` is not cut to the range. ``interval`` is that of 95 %, ``None`` or NaN where no error is known;
    then the value alone decides.
    """
    if value is None or not math.isfinite(value):
        return False
    if value < low - _slack(low) or value > high + _slack(high):
        return False
    return interval is None or not (interval[0] <= low and interval[1] >= high)


def _slack(end: float) -> float:
    return _ROUNDING * abs(end) if math.isfinite(end) else 0.0
