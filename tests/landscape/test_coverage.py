import pytest

from . import coverage_trace
from .coverage import QUANTITIES, Population, Quantity, coverage, trained_population


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_population()


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.name)
def test_nominal_intervals_cover_the_truth(quantity: Quantity, population: Population) -> None:
    assert 0.92 <= coverage(quantity, population) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("row", coverage_trace.ROWS, ids=lambda row: row.name)
def test_intervals_of_trace_diagonal_and_density_cover_the_truth(
    row: coverage_trace.Row, population: Population
) -> None:
    assert 0.92 <= coverage_trace.share(row, population) <= 0.98
