"""The error bars and bands of all figures: 95 % intervals, Student's, as in the verdicts."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedscope.statistics.standard_errors import interval

if TYPE_CHECKING:  # a surface is drawn without records
    from fedscope.records.estimates import Entry

Values = NDArray[np.floating[Any]]
NORMAL = math.inf  # degrees of freedom of an error that is known well


def reach(stderr: float, dof: float = NORMAL) -> float:
    """Return half of the 95 % interval; NaN where the error is not known."""
    return interval(0.0, stderr, dof)[1]


def reach_of(entry: "Entry") -> float:
    return math.nan if math.isnan(entry.value) or not entry.error else reach(*entry.error)


def reach_over_seeds(values: Values) -> Values | None:
    """Return half of the 95 % interval of the mean over seeds, the first axis; None of a single seed."""
    count = len(values)
    if count < 2:
        return None
    half: Values = values.std(0, ddof=1) * reach(count**-0.5, count - 1)
    return half
