"""Which estimates are resolved: those that lie in their range and whose interval leaves some of it out.

Noise can carry an unbiased estimate out of what its quantity can be, a squared norm below 0 or a cosine
beyond ±1, or make its interval so wide that nothing is excluded. Such a number is kept in the record, with
``"resolved": false`` beside it, and shown as "unresolved". An estimate in its range whose interval excludes
something is resolved, however wide the interval.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

UNRESOLVED = "unresolved"
RANGES: Mapping[str, tuple[float, float]] = {"H_N": (0.0, math.inf), "H_D": (-1.0, 1.0)}
_ROUNDING = 1e-6  # of products in float32, beyond an end of the range and relative to it

Record = Mapping[str, Any]


def is_resolved(
    value: float | None, interval: Sequence[float] | None, low: float = -math.inf, high: float = math.inf
) -> bool:
    """Say whether an estimate of a quantity between ``low`` and ``high`` says anything about it.

    Args:
        value: as estimated, not cut to the range; unresolved where it is ``None`` or not finite.
        interval: the 95 % interval; ``None`` or NaN where no error is known, so that the value alone decides.
        low: the least that the quantity can be.
        high: the most.
    """
    if value is None or not math.isfinite(value):
        return False
    if value < low - _slack(low) or value > high + _slack(high):
        return False
    return interval is None or not (interval[0] <= low and interval[1] >= high)


def entry_resolved(entry: Record, symbol: str) -> bool:
    """Say whether the mean ``H_N`` or ``H_D`` of a record's ``cross_client`` entry is resolved.

    An older record does not state it. Its means are cut to the range: one at an end with an error was beyond
    it.
    """
    stated = entry.get("resolved")
    if isinstance(stated, bool):
        return stated
    value, (low, high) = entry["value"], RANGES[symbol]
    was_cut = value in (low, high) and bool(entry.get("stderr"))
    return not was_cut and is_resolved(value, entry.get("interval"), low, high)


def pairs_resolved(crossing: Record, symbol: str, reading: str) -> list[list[bool]]:
    """Return for each pair of clients whether its ``H_N`` or ``H_D`` in the matrix of a reading is resolved.

    ``crossing`` is a record's ``cross_client`` entry that has this matrix. In an older record, which does not
    state it, pairs are unresolved where they are out of the range or have no value.
    """
    stated = ((crossing.get("matrices_resolved") or {}).get(symbol) or {}).get(reading)
    if stated is not None:
        return [list(row) for row in stated]
    values, (low, high) = crossing["matrices"][symbol][reading], RANGES[symbol]
    return [[is_resolved(value, None, low, high) for value in row] for row in values]


def _slack(end: float) -> float:
    return _ROUNDING * abs(end) if math.isfinite(end) else 0.0
