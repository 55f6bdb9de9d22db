"""Whether one checkpoint's curvature is lower than another's: differences with their own error bars.

Two checkpoints measured on the same samples share most of what is random: a batch that is hard for one is
hard for the other, and the probes are the same vectors. So the error of a difference is taken from the
differences themselves, batch by batch and probe by probe, and is seldom as large as the two errors together.

Built from two Hessian records; nothing is computed again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.records.cross_client import READINGS, CrossClient
from fedscope.records.estimates import SYMBOLS, Eigenvalue
from fedscope.records.hessian import HessianRecord, Trace
from fedscope.statistics.intervals import combined, data_stderr, interval

LEVEL = 0.95
NONE = (0.0, math.inf)  # no such error


@dataclass(frozen=True)
class Difference:
    """A quantity of ``other`` minus that of ``reference``, with both error bars."""

    quantity: str
    value: float
    probe: tuple[float, float]  # standard error over probes and its degrees of freedom; 0 if there are none
    data: tuple[float, float]  # over the samples; NaN where there is one batch only

    @property
    def stderr(self) -> float:
        """The standard error, of probes and samples together."""
        return combined(self.probe, self.data)[0]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of both errors together."""
        return interval(self.value, *combined(self.probe, self.data), LEVEL)

    @property
    def verdict(self) -> str:
        """``lower``, ``higher``, or ``undecided`` where the interval holds zero or is unknown."""
        low, high = self.interval
        return "lower" if high < 0 else "higher" if low > 0 else "undecided"


def differences(reference: HessianRecord, other: HessianRecord) -> list[Difference]:
    """Return what two records have in common, as differences.

    λ_max and trace are paired as said above. H_N and H_D, whose clients have nothing in common, are not:
    their errors add in squares. A difference to one that is not resolved is NaN, and undecided.

    Raises:
        UserError: the records were not made on the same samples with the same operator.
    """
    if (reference.samples_sha256, reference.batch_sizes) != (other.samples_sha256, other.batch_sizes):
        raise UserError("the two were not measured on the same samples: there is no paired difference")
    settings = ("operator", "parameters", "bn", "engine", "reading")
    if any(getattr(reference.problem, name) != getattr(other.problem, name) for name in settings):
        raise UserError(f"the two are not the same quantity: they differ in one of {', '.join(settings)}")
    sizes = reference.batch_sizes
    found = [
        _eigenvalue(reference.lambda_max, other.lambda_max, sizes),
        _trace(reference.trace, other.trace, sizes),
    ]
    found = [difference for difference in found if not math.isnan(difference.value)]
    if reference.cross_client and other.cross_client:
        found += _cross(reference.cross_client, other.cross_client)
    return found


def _eigenvalue(ours: Eigenvalue, theirs: Eigenvalue, sizes: Sequence[int]) -> Difference:
    # To first order an eigenvalue moves by the form at its own eigenvector, which the samples do not move.
    return Difference("λ_max", theirs.value - ours.value, NONE, _data(ours, theirs, sizes))


def _trace(ours: Trace, theirs: Trace, sizes: Sequence[int]) -> Difference:
    probe = _probes(_numbers(ours.samples), _numbers(theirs.samples))
    return Difference("trace", theirs.value - ours.value, probe, _data(ours, theirs, sizes))


def _cross(ours: CrossClient, theirs: CrossClient) -> list[Difference]:
    found = []
    for symbol in SYMBOLS:
        for reading in READINGS:
            mine, yours = ours.mean(symbol, reading), theirs.mean(symbol, reading)
            if mine and yours:
                known = mine.resolves(symbol) and yours.resolves(symbol)
                error = combined((mine.stderr, mine.dof), (yours.stderr, yours.dof))
                gap = yours.value - mine.value if known else math.nan
                found.append(Difference(f"{symbol} ({reading})", gap, error, NONE))
    return found


def _data(ours: Eigenvalue | Trace, theirs: Eigenvalue | Trace, sizes: Sequence[int]) -> tuple[float, float]:
    mine, yours = _numbers(ours.batches), _numbers(theirs.batches)
    known = len(mine) == len(yours) == len(sizes)
    return data_stderr(yours - mine, sizes) if known else math.nan, len(sizes) - 1


def _probes(mine: Tensor, yours: Tensor) -> tuple[float, float]:
    """Return the standard error of a difference of means over probes of which the first ones are shared.

    Var(x̄ − ȳ) = σ²_x/m + σ²_y/n − 2·σ_xy/max(m, n).
    """
    shared = min(len(mine), len(yours))
    if shared < 2:
        return NONE if len(mine) == len(yours) == 0 else (math.nan, 0)
    covariance = torch.cov(torch.stack([mine[:shared], yours[:shared]]))[0, 1]
    variance = mine.var() / len(mine) + yours.var() / len(yours)
    variance -= 2 * covariance / max(len(mine), len(yours))
    return math.sqrt(max(0.0, float(variance))), shared - 1


def _numbers(values: Sequence[float] | None) -> Tensor:
    return torch.tensor(values or (), dtype=torch.float64)
