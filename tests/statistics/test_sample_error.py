"""The error of a mean of samples, with as many degrees of freedom as the tails leave."""

import math

import pytest
import torch

from fedscope.statistics.standard_errors import effective_number, interval, sample_error


def test_normal_values_have_all_degrees_of_freedom_but_one() -> None:
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error, dof = sample_error(values)
    assert error == pytest.approx(float(values.std()) / 4000**0.5)
    assert 0.8 * 3999 < dof <= 3999
    assert sample_error(torch.tensor([-1.0, 1.0] * 8))[1] == 15  # lighter than normal: no more than N − 1


def test_heavy_tails_leave_fewer() -> None:
    """The spread of the estimated variance over draws is that of a χ² with as many degrees of freedom."""
    generator = torch.Generator().manual_seed(1)
    draws = torch.empty(3000, 400, dtype=torch.float64).exponential_(generator=generator)
    found = [sample_error(draw) for draw in draws]
    variances = torch.tensor([error**2 for error, _ in found], dtype=torch.float64)
    true = 2 * float(variances.mean()) ** 2 / float(variances.var())
    dofs = sorted(dof for _, dof in found)
    assert dofs[1500] == pytest.approx(true, rel=0.35)  # κ is biased downward on few samples
    assert true < 150


def test_too_few_or_equal_values() -> None:
    assert all(map(math.isnan, sample_error(torch.ones(1))))
    assert sample_error(torch.ones(5)) == (0.0, 4)
    assert interval(1.0, *sample_error(torch.ones(5))) == (1.0, 1.0)


def test_the_effective_number_counts_what_carries_the_sum() -> None:
    assert effective_number(torch.ones(7)) == pytest.approx(7)
    assert effective_number(torch.tensor([5.0, 0, 0, 0])) == 1
    assert math.isnan(effective_number(torch.zeros(3)))
