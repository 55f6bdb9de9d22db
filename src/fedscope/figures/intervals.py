"""Errors of the entries of a record, and the 95 % intervals that they make: Student's, as in the verdicts."""

import math
from collections.abc import Mapping
from typing import Any

from fedscope.statistics.intervals import combined, interval

KINDS = (("stderr", "dof"), ("stderr_probe", "samples"), ("stderr_data", "batches"))
"""Each standard error that an entry may have, with what tells its degrees of freedom."""


def error_of(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the standard error of an entry, of probes and samples together, and its degrees of freedom.

    None where it has none.
    """
    known = [
        (float(entry[error]), _dof(entry.get(beside)))
        for error, beside in KINDS
        if entry.get(error) is not None
    ]
    return known[0] if len(known) == 1 else combined(*known) if known else None


def reach(stderr: float, dof: float) -> float:
    """Return half of the 95 % interval; NaN where the error is not known."""
    return interval(0.0, stderr, dof)[1]


def _dof(found: Any) -> float:
    """Return the degrees of freedom that an entry states, or those of the values its error is from."""
    return float(len(found) - 1) if isinstance(found, list) else float(found or math.inf)
