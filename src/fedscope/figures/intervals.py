"""The 95 % intervals of figures: Student's, as in the verdicts."""

from fedscope.statistics.intervals import interval


def reach(stderr: float, dof: float) -> float:
    """Return half of the 95 % interval; NaN where the error is not known."""
    return interval(0.0, stderr, dof)[1]
