import math

import pytest
import torch

from fedscope.statistics.standard_errors import batches_freedom, drawn_stderr, interval, sloped_interval


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


@pytest.mark.parametrize("heavy", [False, True])
def test_the_freedom_of_batches_is_that_of_the_variance_of_their_means(heavy: bool) -> None:
    """Of 16 batches of 16 samples, 3 % of which may be 8 times as large: 2σ⁴/Var s² over many draws."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20_000, 256, generator=generator, dtype=torch.float64)
    if heavy:
        values *= torch.where(torch.rand(values.shape, generator=generator) < 0.03, 8.0, 1.0)
    squares = values.view(-1, 16, 16).mean(2).var(1)
    truth = float(2 * squares.mean() ** 2 / squares.var())
    assert batches_freedom(16, values.flatten()[:256]) <= 15
    whole = batches_freedom(16, values.flatten())  # whose kurtosis is known, of N = 5,120,000
    excess = (2 / whole - 2 / 15) * values.numel()
    assert 2 / (2 / 15 + excess / 256) == pytest.approx(truth, rel=0.08)


def test_the_freedom_of_equal_samples_is_that_of_their_batches() -> None:
    assert batches_freedom(16, torch.ones(64)) == 15
