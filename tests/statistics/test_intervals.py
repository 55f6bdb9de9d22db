import math

import pytest
import torch

from fedscope.statistics.intervals import bias_range, drawn_stderr, interval, sloped_interval


def test_where_all_were_taken_there_is_no_error_whatever_it_was() -> None:
    assert drawn_stderr(2.0, 0.25) == 1.0
    assert drawn_stderr(math.nan, 0.0) == 0.0
    assert math.isnan(drawn_stderr(math.nan, 0.25))


def test_the_ends_of_a_sloped_interval_are_as_far_as_their_own_variance_allows() -> None:
    t, (low, high) = 2.131449545559323, sloped_interval(3.0, 0.5, 0.4, 15)  # t: Student's at 15 degrees
    for end in (low, high):
        assert abs(3.0 - end) == pytest.approx(t * math.sqrt(0.5**2 + 0.4 * (end - 3.0)))
    assert high - 3.0 > 3.0 - low


def test_without_a_slope_it_is_students() -> None:
    assert sloped_interval(3.0, 0.5, 0.0, 15) == interval(3.0, 0.5, 15)
    assert sloped_interval(3.0, 0.0, 0.4, 15) == (3.0, 3.0)
    assert all(math.isnan(end) for end in sloped_interval(math.nan, math.nan, 0.4, 15))


def test_squares_are_covered_down_to_zero() -> None:
    """(x + e)² − σ² estimates x² with variance 4σ²x² + 2σ⁴: the reason for the slope."""
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for x in (0.0, 0.5, 3.0):
        hits = 0
        for estimate in ((x + noise) ** 2 - 1).clamp(min=0).tolist():
            low, high = sloped_interval(estimate, math.sqrt(4 * estimate + 2), 4.0, math.inf)
            hits += low <= x * x <= high
        assert 0.93 < hits / 4000 < 0.99


@pytest.mark.parametrize(
    ("bias", "most", "expected"),
    [(2.0, 2.0, (2.0, 2.0)), (2.0, 6.0, (0.0, 6.0)), (-1.0, -3.0, (-3.0, 0.0)), (0.0, 0.0, (0.0, 0.0))],
)
def test_a_bias_that_may_be_larger_may_also_be_none(
    bias: float, most: float, expected: tuple[float, float]
) -> None:
    assert bias_range(bias, most) == expected
