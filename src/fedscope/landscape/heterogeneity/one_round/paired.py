"""Numbers on common samples and probes: linear combinations keep the errors that are left of them.

A number that is a mean over batches is known by its part f_b of each batch; one that is not, such as a
share of an eigenspace, by the jackknife's pseudo-values θ/w_b − (1/w_b − 1)·θ_(−b), w_b = n_b/N, which
stand for the f_b (Tukey 1958; of unequal sizes Busing, Meijer and van der Leeden 1999). A difference of two
numbers on the same batches has the difference of their parts, whose spread is all the error that is left;
numbers on different sets of samples have independent errors. Probes that several numbers share pair these
in the same way.

Symbols: M probes, B batches of one set of samples.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.printing import Printed
from fedscope.statistics.standard_errors import (
    combined,
    interval,
    mean_stderr,
    probed_data_error,
    sloped_interval,
)

Error = tuple[float, float]  # a standard error and its degrees of freedom
EXACT: Error = (0.0, math.inf)


@dataclass(frozen=True, repr=False)
class Part(Printed):
    """What one set of samples says of a number, batch by batch."""

    estimates: Tensor  # (M, B) float64: each batch's part by each probe; M = 1 without probes
    sizes: tuple[int, ...]  # (B,) samples
    factor: float = 1.0  # of a finite population on variances

    @property
    def probes(self) -> Tensor:
        counts = torch.tensor(self.sizes, dtype=torch.float64)
        return self.estimates @ (counts / counts.sum())

    @property
    def data(self) -> Error:
        """The error over the samples, without the probes' noise in it."""
        if self.factor == 0:
            return EXACT
        stderr, dof = probed_data_error(self.estimates, self.sizes)
        return math.sqrt(self.factor) * stderr, dof

    def scaled(self, stderr: float) -> "Part":
        """Return the part with an error over the samples that is known better than by its spread."""
        own, mean = self.data[0], self.probes[:, None]
        ratio = stderr / own if own > 0 else 1.0
        return replace(self, estimates=mean + ratio * (self.estimates - mean))

    def within(self, sizes: tuple[int, ...]) -> "Part":
        """Return a part that is known by sample as one that is known by batches of so many samples."""
        if self.sizes != (1,) * sum(sizes):
            return self
        means = torch.stack([batch.mean(1) for batch in self.estimates.split(sizes, 1)], 1)
        return replace(self, estimates=means, sizes=sizes)


@dataclass(frozen=True, repr=False)
class Paired(Printed):
    """A number on the samples as they are, with errors that pair with those of others on common samples.

    ``bias`` is how far the value is too high on average on so few samples.
    """

    value: float
    parts: Mapping[str, Part]  # by the name of a set of samples
    bias: float = 0.0
    bound: float = 0.0  # of an error that is no spread: an eigenvalue's residual, its bias's error
    low: float = -math.inf  # the least that the number can be
    high: float = math.inf  # the most

    @property
    def probe(self) -> Error:
        several = [part.probes for part in self.parts.values() if len(part.estimates) > 1]
        if not several:
            return EXACT
        together = torch.stack(several).sum(0)
        return mean_stderr(together.tolist()), len(together) - 1

    @property
    def data(self) -> Error:
        if not self.parts:
            return math.nan, math.nan
        return combined(*(part.data for part in self.parts.values()))

    @property
    def stderr_probe(self) -> float:
        return self.probe[0]

    @property
    def stderr_data(self) -> float:
        return self.data[0]

    @property
    def dof(self) -> float:
        return combined(self.probe, self.data)[1]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of the number on what the samples were drawn from: of all errors together.

        It is centred at the possible number that is nearest to the value less its bias, and not cut to the
        range.
        """
        error = combined(self.probe, self.data)
        centre = min(max(self.value - self.bias, self.low), self.high)
        if math.isfinite(self.low) and math.isfinite(self.high):
            low, high = self._squared(centre, *error, level)
        else:
            low, high = interval(centre, *error, level)
        return low - self.bound, high + self.bound

    def _squared(self, centre: float, stderr: float, dof: float, level: float) -> tuple[float, float]:
        """Return the interval of a sum of squares between two ends.

        Near an end the jackknife's variance is that of squares, 4xᵀCx + 2 tr C² of x with the covariance C:
        in proportion to the distance from the end, and there still of the size of the bias, which is tr C.
        """
        upper = self.value > (self.low + self.high) / 2
        end = self.high if upper else self.low
        away, distance = abs(self.value - end), abs(centre - end)
        floor = 2 * self.bias**2 * (1 - 2 * away / (self.high - self.low))
        slope = stderr**2 / away if away > 0 else 0.0
        reach = math.sqrt(slope * distance + floor)
        low, high = sloped_interval(distance, reach, slope, dof, level)
        return (end - high, end - low) if upper else (end + low, end + high)


def mean_of_batches(op: Operator, samples: str, estimates: Tensor, value: float | None = None) -> Paired:
    """Return a number that is a mean over an operator's batches, from its (M, B) or (B,) parts.

    ``value`` is the number itself where it is known better than by its parts.
    """
    rows = torch.atleast_2d(estimates).double().cpu()
    part = Part(rows, op.weights or (1,) * rows.shape[1], op.finite_population)
    return Paired(float(part.probes.mean()) if value is None else value, {samples: part})


def statistic(
    op: Operator,
    samples: str,
    value: float,
    deviations: Tensor,
    low: float = -math.inf,
    high: float = math.inf,
) -> Paired:
    """Return a number that is no mean over batches, by the jackknife: ``deviations`` (B,) are θ_(−b) − θ."""
    if op.weights is None or len(op.weights) < 2:
        return Paired(value, {}, low=low, high=high)
    counts = torch.tensor(op.weights, dtype=torch.float64)
    shares = counts / counts.sum()
    pseudo = value - (1 / shares - 1) * deviations.double().cpu()
    bias = op.finite_population * (value - float(shares @ pseudo))
    part = Part(pseudo[None], op.weights, op.finite_population)
    return Paired(value, {samples: part}, bias, low=low, high=high)


def total(terms: Iterable[tuple[float, Paired]]) -> Paired:
    """Return Σ cᵢ xᵢ of pairs (cᵢ, xᵢ), with the errors of what is left on common batches and probes."""
    value = bias = bound = 0.0
    parts: dict[str, Part] = {}
    known = True
    for factor, one in terms:
        value += factor * one.value
        bias += factor * one.bias
        bound += abs(factor) * one.bound
        known = known and bool(one.parts)
        for name, part in one.parts.items():
            parts[name] = _sum(parts.get(name), factor, part, name)
    return Paired(value, parts if known else {}, bias, bound)


def difference(one: Paired, other: Paired) -> Paired:
    """Return ``one`` − ``other``; exactly 0, without an error, where these are equal batch by batch."""
    return total([(1.0, one), (-1.0, other)])


def merged(one: Paired, other: Paired) -> Paired:
    known = bool(one.parts and other.parts)
    parts = {**one.parts, **other.parts} if known else {}
    return replace(one, parts=parts, bias=one.bias + other.bias, bound=one.bound + other.bound)


def _sum(before: Part | None, factor: float, part: Part, name: str) -> Part:
    if before is None:
        return replace(part, estimates=factor * part.estimates)
    before, part = before.within(part.sizes), part.within(before.sizes)
    probes = {len(before.estimates), len(part.estimates)} - {1}
    if before.sizes != part.sizes or len(probes) > 1:
        raise ValueError(f"numbers of {name} are of different batches or probes")
    return replace(part, estimates=before.estimates + factor * part.estimates)
