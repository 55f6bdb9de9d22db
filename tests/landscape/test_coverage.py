"""The share of intervals that hold the truth is what they claim, as closely as the draws can tell."""

import pytest

from .coverage import NOMINAL, SLACK, Population, shares, trained_population
from .coverage_trace import DRAWN, PRINTED, PROBED


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_population()


@pytest.mark.slow
def test_intervals_from_draws_of_samples_cover_the_population(population: Population) -> None:
    _are_nominal(shares(DRAWN, population.mean, population.draw))


@pytest.mark.slow
def test_intervals_from_probes_cover_the_exact_value(population: Population) -> None:
    """The printed share of negative eigenvalues is wider than nominal."""
    whole = population.whole()
    found = shares([*PROBED, PRINTED], population.mean, lambda _: whole)
    assert found.pop(PRINTED.name) >= 0.95
    _are_nominal(found)


def _are_nominal(found: dict[str, float]) -> None:
    print({name: f"{share:.1%}" for name, share in found.items()})
    assert all(abs(share - NOMINAL) <= SLACK for share in found.values()), found
