"""Advice on a record: how many samples carry λ_max."""

import re

import pytest

from fedscope.figures.text.advice import advice
from fedscope.records.hessian_record import HessianRecord
from tests.figures.records import curvature


@pytest.mark.parametrize(("effective", "said"), [(4.2, True), (29.9, True), (30.0, False), (None, False)])
def test_an_eigenvalue_that_few_samples_carry_is_told(effective: float | None, said: bool) -> None:
    content = curvature()
    content["lambda_max"]["effective_samples"] = effective
    found = [line for line in advice(HessianRecord.read(content)) if "rests on" in line]
    assert bool(found) == said
    assert all(f"{effective:.2g} of" in line for line in found)


@pytest.mark.parametrize(
    ("bias", "ends", "said"),
    [(0.1, (9.0, 11.0), False), (0.6, (8.5, 10.5), True), (0.1, (6.0, 13.0), True), (None, None, False)],
)
def test_the_populations_interval_is_told_where_the_error_alone_misleads(
    bias: float | None, ends: tuple[float, float] | None, said: bool
) -> None:
    content = curvature()
    content["lambda_max"] |= {"value": 10.0, "stderr_data": 0.5, "bias_data": bias, "interval": ends}
    found = [line for line in advice(HessianRecord.read(content)) if "population" in line]
    assert bool(found) == said
    for line in found:
        assert len(line) <= 56  # beside a name in 80 columns
        assert [float(number) for number in re.findall(r"\d+\.\d+", line)] == [*(ends or ()), bias]
