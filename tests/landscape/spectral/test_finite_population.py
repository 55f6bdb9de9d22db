"""Errors over the data of draws from a finite population, by drawing every subset of one."""

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, Hessian, top_eigenpairs, trace
from fedscope.landscape.operators.base import Operator
from fedscope.statistics.standard_errors import finite_population

POPULATION, DRAWN = 8, 5
INPUTS = torch.randn(POPULATION, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def squared(rows: Tensor, population: int | None) -> Hessian:
    """A linear map of one weight with a squared error: H is the mean of x²."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    inputs = INPUTS[rows]
    batches = Batches(inputs, torch.zeros(len(rows), 1).double(), 1, population=population)
    return Hessian(model, lambda out, y: ((out - y) ** 2).mean() / 2, batches)


def test_the_error_is_that_of_draws_without_replacement() -> None:
    """The mean of the squared errors over all subsets is the variance of the values over them, exactly."""
    values, squares, of_traces = [], [], []
    for rows in combinations(range(POPULATION), DRAWN):
        H = squared(torch.tensor(rows), POPULATION)
        found, total = top_eigenpairs(H), trace(H, probes=3)
        values.append(float(found.values))
        squares.append(float(found.stderr_data) ** 2)
        of_traces.append(total.stderr_data**2)
    true = torch.tensor(values).double().var(unbiased=False)
    assert torch.tensor(squares).mean() == pytest.approx(float(true), rel=1e-5)
    assert torch.tensor(of_traces).mean() == pytest.approx(float(true), rel=1e-5)


def test_a_whole_population_has_no_error() -> None:
    H = squared(torch.arange(POPULATION), POPULATION)
    found, total = top_eigenpairs(H), trace(H, probes=3)
    assert (float(found.stderr_data), float(found.bias_data), total.stderr_data) == (0, 0, 0)
    low, high = found.interval()
    assert high - low <= 3 * float(found.residuals) + 1e-12


def test_an_infinite_population_is_the_usual_one() -> None:
    rows = torch.arange(DRAWN)
    usual, finite = top_eigenpairs(squared(rows, None)), top_eigenpairs(squared(rows, POPULATION))
    factor = 1 - DRAWN / POPULATION
    assert float(finite.stderr_data) == pytest.approx(factor**0.5 * float(usual.stderr_data))
    assert float(finite.bias_data) == pytest.approx(factor * float(usual.bias_data))
    assert finite_population(DRAWN, None) == 1
    assert finite_population(DRAWN, POPULATION) == factor


def test_it_goes_with_the_batches_and_the_operator() -> None:
    batches = Batches(torch.randn(64, 2), torch.zeros(64).long(), 32, population=100)
    for kept in (batches, batches.dealt(4), batches.to("cpu", torch.float64)):
        assert kept.population == 100
    model = torch.nn.Linear(2, 3)
    H: Any = Hessian(model, torch.nn.functional.cross_entropy, batches, deal=4)
    parts: list[Operator] = [H, 2 * H, H + H]
    assert [one.finite_population for one in parts] == [0.36] * 3
    other = EmpiricalFisher(model, torch.nn.functional.cross_entropy, Batches(*next(iter(batches))))
    assert other.finite_population == 1


def test_more_samples_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="5 samples cannot be drawn from a population of 4"):
        Batches(torch.zeros(5, 1), torch.zeros(5), population=4)
