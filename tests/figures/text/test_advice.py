"""Advice on a record: how many samples carry λ_max."""

import pytest

from fedscope.figures.text.advice import advice
from fedscope.records.hessian import HessianRecord
from tests.figures.records import curvature


@pytest.mark.parametrize(("effective", "said"), [(4.2, True), (29.9, True), (30.0, False), (None, False)])
def test_an_eigenvalue_that_few_samples_carry_is_told(effective: float | None, said: bool) -> None:
    content = curvature()
    content["lambda_max"]["effective_samples"] = effective
    found = [line for line in advice(HessianRecord.read(content)) if "rests on" in line]
    assert bool(found) == said
    assert all(f"{effective:.2g} of" in line for line in found)
