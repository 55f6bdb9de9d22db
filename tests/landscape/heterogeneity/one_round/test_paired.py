"""Errors of numbers on common samples and probes, in closed form."""

import math

import pytest
import torch
from torch import nn

from fedscope.landscape import Batches, Hessian
from fedscope.landscape.heterogeneity.one_round.paired import Paired, Part, difference, statistic
from fedscope.records.clients_record import amount_entry

from .clients import clients


def test_what_is_left_of_errors_in_a_difference() -> None:
    """Two probes on two sets of samples in three batches each, a quarter of a population is left."""
    sizes = (8, 8, 8)
    first, second, third = (
        torch.tensor(rows, dtype=torch.float64)
        for rows in ([[1, 3, 2], [3, 6, 6]], [[1, 1, 1], [1, 2, 3]], [[2, 3, 4], [0, 0, 0]])
    )
    one = Paired(3.5, {"a": Part(first, sizes, 0.25)}, bias=0.5, bound=0.5)
    other = Paired(1.5, {"a": Part(second, sizes, 0.25), "b": Part(third, sizes, 0.25)}, bound=0.25)
    gap = difference(one, other)
    assert (gap.value, gap.bias, gap.bound) == (2.0, 0.5, 0.75)
    by_probe = (first - second - third).mean(1)  # both sets are seen by the same two probes
    assert gap.probe == pytest.approx((float(by_probe.std()) / 2**0.5, 1))
    alone = Paired(2.0, {"a": Part(first[:1], sizes, 0.25)})
    assert alone.stderr_probe == 0
    assert alone.stderr_data == pytest.approx(0.5 / 3**0.5)
    assert difference(alone, alone).stderr_data == 0
    exact = Paired(2.0, {"a": Part(first[:1], sizes, 0.0)})
    assert exact.data == (0, math.inf)


def test_what_is_known_by_sample_pairs_with_what_is_known_by_batch() -> None:
    samples, means = torch.tensor([[1.0, 3, 2, 6, 6, 9]]).double(), torch.tensor([[1.0, 5, 6]]).double()
    one = Paired(4.5, {"a": Part(samples, (1,) * 6)})
    other = Paired(4.0, {"a": Part(means, (2, 1, 3))})
    for gap, sign in ((difference(one, other), 1), (difference(other, one), -1)):
        assert gap.parts["a"].sizes == (2, 1, 3)
        assert gap.parts["a"].estimates[0].tolist() == [sign * left for left in (1, -3, 1)]
    assert difference(one, one).stderr_data == 0
    heavy = torch.cat([torch.zeros(1, 99), torch.ones(1, 1)], 1).double()
    assert Part(heavy, (1,) * 100).data == pytest.approx((0.01, 1.98), rel=0.05)


def test_pseudo_values_of_a_mean_are_the_batches() -> None:
    """Of unequal batches; the bias of a square is the jackknife's, less in a finite population."""
    found = clients()
    inputs, targets = found.own[0]
    values, shares = torch.tensor([1.0, 2.0, 4.0]).double(), torch.tensor([16, 8, 8]).double() / 32
    mean = float(shares @ values)
    left = torch.tensor([(mean - float(p * x)) / (1 - float(p)) for p, x in zip(shares, values, strict=True)])
    for population in (None, 128):
        pairs = zip(inputs.split([16, 8, 8]), targets.split([16, 8, 8]), strict=True)
        op = Hessian(found.center, nn.functional.cross_entropy, Batches.of(list(pairs)))
        op.population = population
        assert op.weights == (16, 8, 8)
        one = statistic(op, "own", mean, left.double() - mean)
        torch.testing.assert_close(one.parts["own"].estimates[0], values, atol=1e-6, rtol=0)
        assert one.bias == pytest.approx(0, abs=1e-6)
        square = statistic(op, "own", mean**2, left.double() ** 2 - mean**2)
        odds = 1 / shares - 1
        bias = float(shares @ (odds * (left.double() ** 2 - mean**2)))
        assert square.bias == pytest.approx((0.75 if population else 1.0) * bias)


def test_a_share_of_zero_has_the_interval_of_squares() -> None:
    """Of x² at x = 0, normal with variance tr C = bias, the standard deviation is √2 tr C."""
    part = Part(torch.zeros(1, 3, dtype=torch.float64), (8, 8, 8))
    low, high = Paired(0.0, {"s": part}, bias=0.01, low=0, high=1).interval()
    assert (low, high) == pytest.approx((-0.0196 * 2**0.5, 0.0196 * 2**0.5), rel=1e-3)
    entry = amount_entry(Paired(0.0, {"s": part}, bias=0.01, low=0, high=1))
    assert entry["interval"] == [0, high]  # as it is recorded
