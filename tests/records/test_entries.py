"""Results as entries of a record."""

import math

import pytest
import torch

from fedscope.landscape import spectral_density
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.records.entries import density_entry, estimate_entry
from tests.landscape.cases import matrix_operator, symmetric


@pytest.mark.parametrize(("negative", "share"), [(0, 0.0), (15, 0.25)])
def test_the_negative_mass_is_the_share_of_eigenvalues_below_zero(negative: int, share: float) -> None:
    spectrum = torch.cat([-2 - torch.rand(negative), torch.zeros(20), 2 + torch.rand(40 - negative)]).double()
    density = spectral_density(
        matrix_operator(symmetric(spectrum)), probes=12, steps=60, generator=torch.Generator().manual_seed(0)
    )
    entry = density_entry(density)["negative_mass"]
    low, high = entry["interval"]
    assert 0 <= low <= entry["value"] <= high <= 1
    assert low - 1e-9 <= share <= high + 1e-9
    assert high - low < 0.25


def test_an_estimate_without_an_error_has_no_interval() -> None:
    assert estimate_entry(None) is None
    known = estimate_entry(Estimate(0.9, 0.2, low=0.0, high=1.0))
    assert known
    low, high = known["interval"]
    assert 0 < low < 0.9
    assert high == 1.0  # cut to the range
    unknown = estimate_entry(Estimate(0.9, math.nan, low=0.0, high=1.0))
    assert unknown
    assert unknown["interval"] is None
