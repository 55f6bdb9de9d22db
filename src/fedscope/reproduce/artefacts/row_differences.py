"""The difference of two rows of a table, and its error.

The error is that over the trainings and that over the samples together. Over the trainings, where both rows
have two seeds or more, it is that of the two means (Welch 1947). Where one has a single seed, the spread is
taken from the rows of the same column that have several, and pooled over them: of accuracies as it is, of
curvature relative to the mean, since larger numbers vary more. All trainings are measured on the same
samples, whose error their spread does not have: it is that of the difference of two of the trainings,
paired, or that of both measurements where they do not pair. The degrees of freedom are the trainings' alone,
so that a further error never makes a verdict. A difference of λ_max is without the bias that few samples give
it, which the two values by themselves have.

Where no row has several seeds, the spread is :mod:`~fedscope.reproduce.artefacts.claims`. Without any the
error is the measurements' own: of accuracies over the test samples, of curvature over samples and probes, in
both paired where the two rows were measured on the same ones. What is exact for one training, such as the
drift of its clients, then has no known error.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from fedscope.errors import UserError
from fedscope.records.differences import EXACT, Difference, differences
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.outcomes import OutcomesRecord
from fedscope.records.saved_records import Kept
from fedscope.records.sharpness_compared import differences as sharpness_differences
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.reproduce.recipes.table_quantities import QUANTITIES, SHARPNESS, Number, mean, spread
from fedscope.statistics.standard_errors import combined

_PAIRED = {"lambda_max": "λ_max", "trace": "trace"}


@dataclass(frozen=True)
class Sample:
    """A cell's numbers, one per seed, and the record that each is from, or is paired by, if there is one."""

    numbers: tuple[Number, ...]
    records: tuple[Kept | None, ...] = ()
    round: int | None = None  # None: of several
    data: frozenset[str] = frozenset()  # fingerprints of what they were trained on; empty: not known

    @property
    def values(self) -> list[float]:
        return [number.value for number in self.numbers if number.value is not None]


Samples = Mapping[tuple[str, str, str], Sample]  # row, column, quantity → numbers


@dataclass(frozen=True)
class SeedSpread:
    """The standard deviation between trainings, pooled over rows with several seeds."""

    value: float
    dof: int
    relative: bool  # to a row's mean
    rows: tuple[str, ...]
    source: str = ""  # what it is borrowed from

    def of(self, average: float) -> float:
        """Return the standard deviation between trainings of a row with this mean."""
        return self.value * abs(average) if self.relative else self.value


def spread_between_seeds(samples: Samples, column: str, quantity: str) -> SeedSpread | None:
    relative = QUANTITIES[quantity].measure is not None
    rows, total, dof = [], 0.0, 0
    for (row, at, name), sample in samples.items():
        values = sample.values
        if (at, name) != (column, quantity) or len(values) < 2 or len(values) < len(sample.numbers):
            continue
        average = sum(values) / len(values)
        if relative and average == 0:
            continue
        rows.append(row)
        total += (len(values) - 1) * (spread(values) / (average if relative else 1)) ** 2
        dof += len(values) - 1
    return SeedSpread(math.sqrt(total / dof), dof, relative, tuple(rows)) if rows else None


def difference(quantity: str, ours: Sample, theirs: Sample, between: SeedSpread | None = None) -> Difference:
    """Return ours minus theirs, with an error of NaN where it is not known."""
    mine, mine_error, mine_dof = mean(ours.numbers)
    yours, yours_error, yours_dof = mean(theirs.numbers)
    counts = (len(ours.numbers), len(theirs.numbers))
    several, paired = bool(between) or min(counts) > 1, _paired(quantity, ours, theirs)
    if paired and not several and max(counts) == 1:
        return paired.of_samples
    if min(counts) == 1 and between:
        parts = (between.of(average) ** 2 / count
                 for average, count in zip((mine, yours), counts, strict=True))  # fmt: skip
        over_seeds = (math.sqrt(sum(parts)), float(between.dof))
    elif mine_error is None or yours_error is None:
        over_seeds = (math.nan, math.inf)
    else:
        over_seeds = combined((mine_error, mine_dof), (yours_error, yours_dof))
    over_samples, shift, bound = EXACT, 0.0, 0.0
    if several and paired:
        own = paired.of_samples
        over_samples, shift, bound = (own.stderr, math.inf), paired.shift, own.bound
    elif several:
        over_samples = combined(_measured(ours), _measured(theirs))
    stderr, _ = combined(over_seeds, over_samples)
    if stderr == 0 and max(counts) == 1 and not QUANTITIES[quantity].static:
        stderr = math.nan
    return Difference(quantity, mine - yours + shift, data=(stderr, over_seeds[1]), bound=bound)


@dataclass(frozen=True)
class _Pair:
    """The difference of two runs on the same samples, and how far it is from that of their two values."""

    of_samples: Difference
    shift: float  # of λ_max: without the bias that its samples give it


def _paired(quantity: str, ours: Sample, theirs: Sample) -> _Pair | None:
    """Return the first two runs that were measured on the same samples; of curvature with the same probes."""
    mine = zip(ours.numbers, ours.records, strict=False)
    yours = list(zip(theirs.numbers, theirs.records, strict=False))
    for (number, record), (other, reference) in product(mine, yours):
        if number.value is None or other.value is None:
            continue
        gap = number.value - other.value
        if found := _of_records(quantity, gap, record, reference):
            return _Pair(found, found.value - gap)
    return None


def _of_records(quantity: str, gap: float, mine: Kept | None, yours: Kept | None) -> Difference | None:
    if isinstance(mine, OutcomesRecord) and isinstance(yours, OutcomesRecord):
        paired_error = (100 * mine.stderr(yours), math.inf)
        return Difference(quantity, gap, data=paired_error) if mine.pairs(yours) else None
    name = _PAIRED.get(quantity)
    if quantity.startswith(SHARPNESS):
        name = quantity.removeprefix(f"{SHARPNESS}_")
    try:
        found = _differences(mine, yours)
    except UserError:
        return None
    return next((one for one in found if one.quantity == name and math.isfinite(one.stderr)), None)


def _measured(sample: Sample) -> tuple[float, float]:
    """Return the error of a run's own measurement; 0 where there is none to have."""
    number = sample.numbers[0]
    return EXACT if number.error is None else (number.error, number.dof)


def _differences(mine: Kept | None, yours: Kept | None) -> list[Difference]:
    if isinstance(mine, HessianRecord) and isinstance(yours, HessianRecord):
        return differences(yours, mine)
    if isinstance(mine, SharpnessRecord) and isinstance(yours, SharpnessRecord):
        return sharpness_differences(yours, mine)
    return []
