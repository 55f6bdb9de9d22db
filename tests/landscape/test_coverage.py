import pytest

from .coverage import QUANTITIES, Population, Quantity, coverage, trained_population


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_population()


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda quantity: quantity.name)
def test_nominal_intervals_cover_the_truth(quantity: Quantity, population: Population) -> None:
    assert 0.92 <= coverage(quantity, population) <= 0.98
