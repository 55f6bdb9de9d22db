"""The intervals of H_N and H_D hold the truth as often as they claim, as closely as the draws can tell."""

from typing import Any

import pytest

from .coverage import NOMINAL, SLACK
from .coverage_clients import Population, coverage, of_population, of_samples, trained_clients


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_clients()


def test_clients_differ(population: Population) -> None:
    assert population.truth()["H_D", "parameter"] < 0.9


@pytest.mark.drawn
@pytest.mark.parametrize("options", [{"probes": 64}, {"rtol": 0.03}])
def test_intervals_cover_the_truth(population: Population, options: dict[str, Any]) -> None:
    shares = coverage(population, population.whole, of_samples, **options)
    print(options, {key: round(share, 3) for key, share in shares.items()})
    assert all(abs(share - NOMINAL) <= SLACK for share in shares.values()), shares


@pytest.mark.drawn
def test_intervals_from_draws_of_each_clients_samples_cover_the_populations(population: Population) -> None:
    """Those of H_D a little too often: the jackknife exaggerates what is of second order."""
    shares = coverage(population, population.draw, of_population, probes=64)
    print({key: round(share, 3) for key, share in shares.items()})
    assert all(share >= NOMINAL - SLACK for share in shares.values()), shares
    assert all(shares["H_N", reading] <= NOMINAL + SLACK for reading in ("parameter", "tensor")), shares


@pytest.mark.slow
def test_without_the_population_they_would_not(population: Population) -> None:
    assert coverage(population, population.draw, of_samples, draws=20, probes=64)["H_D", "parameter"] < 0.5
