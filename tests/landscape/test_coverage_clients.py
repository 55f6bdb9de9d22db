"""The intervals of H_N and H_D hold the truth as often as they claim, as closely as the draws can tell."""

import pytest

from .coverage import DRAWS, NOMINAL, SLACK
from .coverage_clients import Population, coverage, trained_clients


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_clients()


def test_clients_differ(population: Population) -> None:
    assert population.truth()["H_D", "parameter"] < 0.9


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"probes": 64}, {"rtol": 0.03}])
def test_intervals_cover_the_truth(population: Population, options: dict[str, float]) -> None:
    shares = coverage(population, range(DRAWS), **options)
    print(options, {key: round(share, 3) for key, share in shares.items()})
    assert all(abs(share - NOMINAL) <= SLACK for share in shares.values()), shares
