"""Verdicts where there is nothing to find, and where there is: known populations on shared samples."""

from typing import Any

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from fedscope.landscape import top_eigenpairs
from fedscope.records.differences import differences
from fedscope.records.entries import eigenvalues, finite
from fedscope.records.hessian_record import HessianRecord
from tests import tiers
from tests.landscape.features import Features

DRAWS = tiers.draws(most=40)
SAMPLES, N = 1024, 60


def record(features: Tensor) -> HessianRecord:
    """The record of λ_max on these samples; its trace is of no interest."""
    found = top_eigenpairs(Features(features))
    (entry,) = eigenvalues(found)
    nothing = {"value": None, "stderr_probe": None, "stderr_data": None}
    content: dict[str, Any] = {
        "schema": "fedscope/hessian/1", "checkpoint": {"sha256": "0"}, "samples_sha256": "s",
        "batch_sizes": [32] * 32, "problem": {"samples": SAMPLES}, "lambda_max": entry,
        "eigenvalues": [entry], "trace": nothing, "density": None, "cross_client": None,
    }  # fmt: skip
    return HessianRecord.read(finite(content))


def verdicts(ours: Tensor, theirs: Tensor) -> list[str | None]:
    """Return the verdict on λ_max of each draw, for two spectra of the features' covariance."""
    found: list[str | None] = []
    for seed in range(DRAWS):
        z = torch.randn(SAMPLES, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        one, other = record(z * ours.sqrt()), record(z.roll(1, dims=1) * theirs.sqrt())
        (gap,) = differences(one, other)
        found.append(gap.verdict)
    return found


ALONE = torch.cat([torch.tensor([2.0]), torch.full((N - 1,), 0.01)]).double()
BULK = torch.cat([torch.tensor([2.0]), torch.linspace(1.2, 0.2, N - 1)]).double()
CROWD = torch.cat([torch.tensor([2.0]), torch.full((N - 1,), 1.88)]).double()


@pytest.mark.drawn
@pytest.mark.parametrize("spectrum", [BULK, CROWD], ids=["bulk", "crowd"])
def test_equal_values_are_undecided(spectrum: Tensor) -> None:
    """One has others below its λ_max, which raise it on so few samples, and the other none."""
    found = verdicts(ALONE, spectrum)
    wrong = sum(verdict != "undecided" for verdict in found)
    print(f"{wrong} of {len(found)}")
    assert wrong <= 0.05 * DRAWS + DRAWS * tiers.slack(DRAWS)


@pytest.mark.drawn
@pytest.mark.parametrize("distance", [1, 2, 3])
def test_the_power_is_that_of_the_normal_test(distance: int) -> None:
    """A squared normal's mean is known to √(2/N) of itself, and the two records' are independent."""
    error = 2 * (2 * 2 / SAMPLES) ** 0.5
    higher = torch.cat([torch.tensor([2.0 + distance * error]).double(), ALONE[1:]])
    found = verdicts(ALONE, higher)
    power = float(norm.sf(1.96 - distance))
    print(f"{distance} standard errors: {found.count('higher')} of {len(found)}; expected {power:.2f}")
    assert (
        abs(found.count("higher") - power * DRAWS) <= 3 * (power * (1 - power) * DRAWS) ** 0.5 + 0.03 * DRAWS
    )
    assert found.count("lower") <= 1 + 0.01 * DRAWS
