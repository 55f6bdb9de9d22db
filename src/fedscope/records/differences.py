"""Whether one checkpoint's curvature is lower than another's: differences with their own error bars.

Two checkpoints measured on the same samples share most of what is random: a batch that is hard for one is
hard for the other, and the probes are the same vectors. So the error of a difference is taken from the
differences themselves, batch by batch and probe by probe, and is seldom as large as the two errors together.

Built from two records of ``fedscope hessian --json``; nothing is computed again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.statistics.intervals import combined, data_stderr, interval
from fedscope.statistics.resolution import entry_resolved

Record = Mapping[str, Any]
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


def differences(reference: Record, other: Record) -> list[Difference]:
    """Return what two records have in common, as differences.

    λ_max and trace are paired as said above. H_N and H_D, whose clients have nothing in common, are not:
    their errors add in squares. A difference to one that is not resolved is NaN, and undecided.

    Raises:
        UserError: the records were not made on the same samples with the same operator.
    """
    for name in ("samples_sha256", "batch_sizes"):
        if reference.get(name) != other.get(name):
            raise UserError("the two were not measured on the same samples: there is no paired difference")
    settings = ("operator", "parameters", "bn", "engine", "reading")
    if any(reference["problem"].get(name) != other["problem"].get(name) for name in settings):
        raise UserError(f"the two are not the same quantity: they differ in one of {', '.join(settings)}")
    sizes = reference["batch_sizes"]
    found = [
        _eigenvalue(reference["lambda_max"], other["lambda_max"], sizes),
        _trace(reference["trace"], other["trace"], sizes),
    ]
    found = [difference for difference in found if not math.isnan(difference.value)]
    if reference["cross_client"] and other["cross_client"]:
        found += _cross(reference["cross_client"], other["cross_client"])
    return found


def _eigenvalue(ours: Record, theirs: Record, sizes: Sequence[int]) -> Difference:
    # To first order an eigenvalue moves by the form at its own eigenvector, which the samples do not move.
    return Difference("λ_max", _gap(ours, theirs), NONE, _data(ours, theirs, sizes))


def _trace(ours: Record, theirs: Record, sizes: Sequence[int]) -> Difference:
    probe = _probes(_numbers(ours.get("samples")), _numbers(theirs.get("samples")))
    return Difference("trace", _gap(ours, theirs), probe, _data(ours, theirs, sizes))


def _cross(ours: Record, theirs: Record) -> list[Difference]:
    found = []
    for symbol in ("H_N", "H_D"):
        for reading in ("tensor", "parameter"):
            mine, yours = ours[symbol][reading], theirs[symbol][reading]
            if mine and yours:
                known = entry_resolved(mine, symbol) and entry_resolved(yours, symbol)
                error = combined(_error(mine), _error(yours))
                gap = _gap(mine, yours) if known else math.nan
                found.append(Difference(f"{symbol} ({reading})", gap, error, NONE))
    return found


def _error(estimate: Record) -> tuple[float, float]:
    return _number(estimate["stderr"]), estimate.get("dof") or math.inf


def _gap(ours: Record, theirs: Record) -> float:
    return _number(theirs["value"]) - _number(ours["value"])


def _data(ours: Record, theirs: Record, sizes: Sequence[int]) -> tuple[float, float]:
    mine, yours = _numbers(ours.get("batches")), _numbers(theirs.get("batches"))
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


def _numbers(values: Sequence[float | None] | None) -> Tensor:
    return torch.tensor([_number(value) for value in values or ()], dtype=torch.float64)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
