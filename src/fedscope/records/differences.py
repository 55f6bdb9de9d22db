"""Differences of two checkpoints with error bars of their own, and verdicts.

They are in every quantity of :mod:`fedscope.records.quantities` that is compared; the errors of two numbers
add in squares, unless a function here (:func:`in_quantity`) knows what they share.

Two checkpoints measured on the same samples share most of what is random: a batch that is hard for one is
hard for the other, and the probes are the same vectors. So the error of a difference is taken from the
differences themselves, batch by batch and probe by probe, and is seldom as large as the two errors together.

A table of many differences would have a wrong verdict somewhere more often than one difference has. So the
verdicts of a table are judged together (:func:`judged`): all of them hold with a probability of 95 %.

Built from two Hessian records; nothing is computed again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.records.estimates import Eigenvalue
from fedscope.records.hessian_record import HessianRecord, TraceEntry
from fedscope.records.number_types import or_null
from fedscope.records.quantities import LAMBDA_MAX, QUANTITIES, TRACE, Quantity
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.statistics.adjusted_p import holm
from fedscope.statistics.standard_errors import (
    combined,
    data_stderr,
    drawn_stderr,
    finite_population,
    interval,
    p_value,
    sample_error,
)

LEVEL = 0.95
EXACT = (0.0, math.inf)  # an error of 0, of no finite number of degrees of freedom

Measured = TypeVar("Measured", HessianRecord, SharpnessRecord)


@dataclass(frozen=True)
class Difference:
    """A quantity of ``other`` minus that of ``reference``, or their distance, with both error bars.

    NaN where one of the two is not resolved.
    """

    quantity: str
    value: float
    probe: tuple[float, float] = EXACT  # standard error over probes, its degrees of freedom; 0 without probes
    data: tuple[float, float] = EXACT  # over the samples; NaN where there is one batch only
    # of an error that is no spread: residuals of eigenvalues; NaN, which decides nothing, where not known
    bound: float = 0.0
    signed: bool = True  # a difference; a distance has no sign, and no verdict
    joint: float | None = None  # p-value adjusted for the others of its table; None: it stands alone
    family: int = 1  # how many are judged together

    @property
    def error(self) -> tuple[float, float]:
        """The standard error of probes and samples together, and its degrees of freedom."""
        return combined(self.probe, self.data)

    @property
    def stderr(self) -> float:
        """The standard error, of probes and samples together."""
        return self.error[0]

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of both errors together, and of the bound beyond it."""
        low, high = interval(self.value, *self.error, LEVEL)
        return low - self.bound, high + self.bound

    @property
    def p(self) -> float:
        """The p-value of no difference: at most 5 % where the interval leaves out zero; NaN where unknown."""
        beyond = max(0.0, abs(self.value) - self.bound)
        return math.nan if math.isnan(self.value) else p_value(beyond, *self.error)

    @property
    def verdict(self) -> Literal["lower", "higher", "undecided"] | None:
        """``lower`` or ``higher`` where the p-value, the joint one if there is one, is at most 5 %."""
        if not self.signed:
            return None
        if not (self.p if self.joint is None else self.joint) <= 1 - LEVEL:
            return "undecided"
        return "lower" if self.value < 0 else "higher"

    @property
    def reason(self) -> str:
        """Why it is undecided: empty where it is decided, unresolved, or within two standard errors."""
        stderr, dof = self.error
        if math.isnan(stderr) and self.signed and not math.isnan(self.value):
            return "error not known"
        if self.verdict != "undecided" or not abs(self.value) > 2 * stderr:
            return ""
        if math.isnan(self.bound):
            return "bias not known"
        if abs(self.value) - self.bound <= 2 * stderr:
            return f"up to {self.bound:.2g} may be bias or inexactness"
        freedom = f"{dof:.3g} dof: " if math.isfinite(dof) else ""
        family = f", {self.joint:.2g} among {self.family} verdicts" if self.family > 1 else ""
        return f"{freedom}p {self.p:.2g}{family}"


OfTwo = Callable[[HessianRecord, HessianRecord], Difference | None]  # None: they do not both have it
_OF_TWO: dict[Quantity, OfTwo] = {}


def in_quantity(quantity: Quantity) -> Callable[[OfTwo], OfTwo]:
    """Return a decorator of the function that compares two records in a quantity."""

    def keep(of: OfTwo) -> OfTwo:
        _OF_TWO[quantity] = of
        return of

    return keep


def differences(reference: HessianRecord, other: HessianRecord) -> list[Difference]:
    """Return what two records have in common, as differences.

    λ_max and trace are paired over samples and probes, λ_max without the bias that its samples give it. H_N
    and H_D, whose clients have nothing in common, are not: their errors add in squares. A difference to one
    that is not resolved is NaN, and undecided.
    """
    if (reference.samples_sha256, reference.batch_sizes) != (other.samples_sha256, other.batch_sizes):
        raise UserError("the two were not measured on the same samples: there is no paired difference")
    settings = ("operator", "parameters", "bn", "engine", "reading")
    if any(getattr(reference.problem, name) != getattr(other.problem, name) for name in settings):
        raise UserError(f"the two are not the same quantity: they differ in one of {', '.join(settings)}")
    found = (
        _OF_TWO[one](reference, other) if one in _OF_TWO else _unpaired(one, reference, other)
        for one in QUANTITIES
        if one.is_compared
    )
    return [difference for difference in found if difference is not None]


def judged(rows: Sequence[Sequence[Difference]]) -> list[list[Difference]]:
    """Return the differences of a table with verdicts that are judged together, by Holm's procedure.

    All verdicts are right with a probability of at least 95 %.
    """
    alone = [one.p if one.signed else math.nan for row in rows for one in row]
    adjusted, family = iter(holm(alone)), sum(not math.isnan(p) for p in alone)
    return [[replace(one, joint=next(adjusted), family=family) for one in row] for row in rows]


def differences_to_first(records: Sequence[HessianRecord]) -> list[list[Difference]]:
    """Return each later record's differences to the first one, judged together."""
    return judged([differences(records[0], other) for other in records[1:]])


def compared(records: Sequence[HessianRecord]) -> list[HessianRecord]:
    """Return the records, each after the first with its ``differences`` to the first, where there are any."""
    return with_differences(records, differences)


def with_differences(
    records: Sequence[Measured], of: Callable[[Measured, Measured], list[Difference]]
) -> list[Measured]:
    """Return :func:`compared` for records of one kind, whose differences are ``of`` two of them.

    A record has none where ``of`` raises a :class:`UserError`.
    """

    def common(other: Measured) -> list[Difference]:
        try:
            return of(records[0], other)
        except UserError:
            return []

    rows = judged([common(other) for other in records[1:]])
    found = list(records[:1])
    for other, row in zip(records[1:], rows, strict=True):
        entries = [_entry(one, records[0].checkpoint.sha256) for one in row]
        found.append(other.edited(differences=entries) if entries else other)
    return found


def _entry(one: Difference, reference: str) -> dict[str, object]:
    low, high = one.interval
    return {
        "quantity": one.quantity,
        "to": reference,
        "value": or_null(one.value),
        "stderr": or_null(one.stderr),
        "interval": None if math.isnan(low) else [low, high],
        "p": or_null(one.p),
        "joint_p": or_null(math.nan if one.joint is None else one.joint),
        "verdict": one.verdict,
        "reason": one.reason,
    }


def is_sharpness(difference: Difference) -> bool:
    """Say whether a difference is of a sharpness."""
    return any(one.symbol == difference.quantity and one.sharpness for one in QUANTITIES)


@in_quantity(LAMBDA_MAX)
def _lambda_max(reference: HessianRecord, other: HessianRecord) -> Difference | None:
    ours, theirs = reference.lambda_max, other.lambda_max
    # To first order an eigenvalue moves by the form at its own eigenvector, which the samples do not move.
    mine, yours = _numbers(ours.by_sample), _numbers(theirs.by_sample)
    if len(mine) == len(yours) > 0:
        data = sample_error(_steadier(theirs, yours, other) - _steadier(ours, mine, reference))
    else:
        data = _data(ours, theirs, reference.batch_sizes)
    data = _finite(data, reference, other)
    gap, bound = theirs.value - ours.value, ours.residual + theirs.residual
    bias = theirs.bias_data - ours.bias_data if _factor(reference, other) else 0.0
    if math.isnan(bias):
        return _known(Difference("λ_max", gap, data=data, bound=math.nan))
    loose = [(one.stderr_bias, max(1.0, len(reference.batch_sizes) - 1.0)) for one in (ours, theirs)]
    return _known(Difference("λ_max", gap - bias, data=combined(data, *loose), bound=bound))


def _steadier(top: Eigenvalue, samples: Tensor, record: HessianRecord) -> Tensor:
    """Return the samples' parts, scaled to the spread that λ_max has by its own standard error."""
    first_order = drawn_stderr(sample_error(samples)[0], _factor(record, record))
    return samples * (top.stderr_data / first_order if first_order > 0 and top.stderr_data > 0 else 1.0)


@in_quantity(TRACE)
def _trace(reference: HessianRecord, other: HessianRecord) -> Difference | None:
    ours, theirs = reference.trace, other.trace
    if ours is None or theirs is None:
        return None
    probe = probes_error(_numbers(ours.samples), _numbers(theirs.samples))
    stderr, dof = _finite(_data(ours, theirs, reference.batch_sizes), reference, other)
    data = stderr, min([dof, *(one.dof_data for one in (ours, theirs) if not math.isnan(one.dof_data))])
    bound = ours.product_error + theirs.product_error
    return _known(Difference("trace", theirs.value - ours.value, probe, data, bound))


def _known(found: Difference) -> Difference | None:
    return None if math.isnan(found.value) else found


def _unpaired(quantity: Quantity, reference: HessianRecord, other: HessianRecord) -> Difference | None:
    """Return the difference of two numbers that have nothing in common: their errors add in squares."""
    for of in filter(None, (quantity.of_population, quantity.of)):
        mine, yours = of(reference), of(other)
        if mine and yours:
            known = mine.is_resolved and yours.is_resolved
            error = combined(*mine.stated_errors, *yours.stated_errors)
            return Difference(quantity.symbol, yours.value - mine.value if known else math.nan, error)
    return None


def _data(
    ours: Eigenvalue | TraceEntry, theirs: Eigenvalue | TraceEntry, sizes: Sequence[int]
) -> tuple[float, float]:
    mine, yours = _numbers(ours.batches), _numbers(theirs.batches)
    known = len(mine) == len(yours) == len(sizes)
    return data_stderr(yours - mine, sizes) if known else math.nan, len(sizes) - 1


def _finite(data: tuple[float, float], reference: HessianRecord, other: HessianRecord) -> tuple[float, float]:
    """Return an error over the samples as one of the population that they were drawn from."""
    return drawn_stderr(data[0], _factor(reference, other)), data[1]


def _factor(reference: HessianRecord, other: HessianRecord) -> float:
    """Return the factor of a finite population on variances."""
    population = reference.problem.population or other.problem.population
    return finite_population(reference.problem.samples, population)


def probes_error(mine: Tensor, yours: Tensor) -> tuple[float, float]:
    """Return the standard error of a difference of means over probes of which the first ones are shared.

    Var(x̄ − ȳ) = σ²_x/m + σ²_y/n − 2·σ_xy/max(m, n).
    """
    shared = min(len(mine), len(yours))
    if shared < 2:
        return EXACT if len(mine) == len(yours) == 0 else (math.nan, 0)
    covariance = torch.cov(torch.stack([mine[:shared], yours[:shared]]))[0, 1]
    variance = mine.var() / len(mine) + yours.var() / len(yours)
    variance -= 2 * covariance / max(len(mine), len(yours))
    return math.sqrt(max(0.0, float(variance))), shared - 1


def _numbers(values: Sequence[float] | None) -> Tensor:
    return torch.tensor(values or (), dtype=torch.float64)
