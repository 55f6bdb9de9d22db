"""The share of intervals that hold the truth is what they claim, as closely as the draws can tell."""

import pytest
import torch

from fedscope.landscape import top_eigenpairs, trace
from tests import tiers

from .coverage import NOMINAL, SLACK, Population, shares, trained_population
from .coverage_trace import DRAWN, PRINTED, PROBED
from .features import Features


@pytest.fixture(scope="module")
def population() -> Population:
    return trained_population()


@pytest.mark.drawn
def test_intervals_from_draws_of_samples_cover_the_population(population: Population) -> None:
    _are_nominal(shares(DRAWN, population.mean, population.draw))


@pytest.mark.drawn
def test_intervals_from_probes_cover_the_exact_value(population: Population) -> None:
    """The printed share of negative eigenvalues is wider than nominal."""
    whole = population.whole()
    found = shares([*PROBED, PRINTED], population.mean, lambda _: whole)
    assert found.pop(PRINTED.name) >= 0.95
    _are_nominal(found)


def test_an_interval_is_no_wider_than_draws_scatter_where_few_samples_carry_a_crowd() -> None:
    """1 in 20 samples has 3 times the scale, and 20 eigenvalues lie between λ_max and its half."""
    spectrum = torch.linspace(1, 0.5, 20).double()
    truth, values, intervals = 1 + 0.05 * (3**2 - 1), [], []
    for seed in range(24):
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(256, 20, generator=generator, dtype=torch.float64) * spectrum.sqrt()
        features *= torch.where(torch.rand(256, 1, generator=generator) < 0.05, 3.0, 1.0)
        found = top_eigenpairs(Features(features, batches=16))
        values.append(float(found.values))
        intervals.append(found.interval())
    widths = torch.tensor([(high - low) / 2 for low, high in intervals])
    assert sum(low <= truth <= high for low, high in intervals) >= 20
    assert float(widths.median()) <= 1.5 * 1.96 * float(torch.tensor(values).std())


@pytest.mark.drawn
def test_the_trace_of_heavy_tails_holds_the_truth() -> None:
    """1 in 20 samples has 4 times the scale: 16 batches alone held it in 92 % of 400 draws of 256 samples."""
    spectrum = torch.arange(1, 61).double() ** -1
    truth, held, widened, draws = (
        float(spectrum.sum()) * (1 + 0.05 * (4**2 - 1)),
        0,
        [],
        tiers.draws(most=120),
    )
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(256, 60, generator=generator, dtype=torch.float64) * spectrum.sqrt()
        features *= torch.where(torch.rand(256, 1, generator=generator) < 0.05, 4.0, 1.0)
        found = trace(Features(features, batches=16), probes=16, seed=seed)
        low, high = found.population_interval()
        held += low <= truth <= high
        widened.append(found.dof_data)
    assert held >= 0.95 * draws - 1.5 * (0.95 * 0.05 * draws) ** 0.5
    assert float(torch.tensor(widened).median()) < 10


def _are_nominal(found: dict[str, float]) -> None:
    print({name: f"{share:.1%}" for name, share in found.items()})
    assert all(abs(share - NOMINAL) <= SLACK for share in found.values()), found
