"""A rerun of a table compared with another one: which of its numbers differ, and whether by more than chance.

Two trainings with other seeds differ by the spread between trainings, which two or more seeds tell on either
side; a difference is judged against that, which has the measurements' errors in it. Where neither side has
more than one, only these are known: a difference beyond them may still be the seeds'. Cells of different
rounds are not compared. All differences of one artefact are judged together (Holm 1979) at 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from fedscope.errors import UserError
from fedscope.records.artefact import ArtefactCell, ArtefactRecord, Claim
from fedscope.records.entries import Record
from fedscope.records.number_types import or_null
from fedscope.reproduce.recipes.table_quantities import spread
from fedscope.statistics.adjusted_p import holm
from fedscope.statistics.standard_errors import combined, p_value

LEVEL = 0.05
Outcome = Literal["equal", "within", "beyond", "beyond the measurement", "not comparable", "missing"]


@dataclass(frozen=True)
class Change:
    """A cell of an artefact in both versions; ``error`` is the standard error of ``value − other``."""

    row: str
    column: str
    quantity: str
    value: float | None
    other: float | None
    error: float
    p: float  # of the page's differences together; NaN where there is no test
    outcome: Outcome


@dataclass(frozen=True)
class Check:
    """What a comparison found."""

    recipe: str
    changes: tuple[Change, ...]
    claims: tuple[tuple[Claim, Claim | None], ...]  # here, and there; those whose verdicts differ

    def count(self, outcome: Outcome) -> int:
        return sum(change.outcome == outcome for change in self.changes)

    def to_json(self) -> Record:
        return {
            "recipe": self.recipe,
            "changes": [
                {**asdict(one), "error": or_null(one.error), "p": or_null(one.p)} for one in self.changes
            ],
            "claims": [
                {"statement": here.statement, "verdict": here.verdict, "other": there and there.verdict}
                for here, there in self.claims
            ],
        }

    @property
    def beyond(self) -> bool:
        """Whether a number differs by more than the spread between trainings."""
        return bool(self.count("beyond"))


def check(here: ArtefactRecord, there: ArtefactRecord) -> Check:
    if (here.recipe, here.scale) != (there.recipe, there.scale):
        raise UserError(
            f"{here.recipe} at scale {here.scale} is not {there.recipe} at scale {there.scale}; "
            "compare the same recipe at the same scale"
        )
    others = {(cell.row, cell.column, cell.quantity): cell for cell in there.entries}
    pairs = [(cell, others.get((cell.row, cell.column, cell.quantity))) for cell in here.entries]
    errors = [_error(cell, other) for cell, other in pairs]
    tested = [_p(cell, other, error) for (cell, other), error in zip(pairs, errors, strict=True)]
    joint = holm(tested)
    changes = [
        _change(cell, other, error, p) for (cell, other), error, p in zip(pairs, errors, joint, strict=True)
    ]
    verdicts = {claim.statement: claim for claim in there.claims}
    claims = [(claim, verdicts.get(claim.statement)) for claim in here.claims]
    differing = [pair for pair in claims if pair[1] is None or pair[0].verdict != pair[1].verdict]
    return Check(here.recipe, tuple(changes), tuple(differing))


def _error(cell: ArtefactCell, other: ArtefactCell | None) -> tuple[float, float, bool]:
    """Return the standard error of the difference, its degrees of freedom, and whether it has the seeds'."""
    if other is None or cell.round != other.round:
        return math.nan, math.nan, False
    samples = [_numbers(cell), _numbers(other)]
    known = [sample for sample in samples if len(sample) > 1]
    if not known:
        of_measurements = [(one.error, math.inf) for one in (cell, other) if one.error is not None]
        return (
            (*combined(*of_measurements), False) if len(of_measurements) == 2 else (math.nan, math.nan, False)
        )
    if len(known) == 2:
        parts = [(spread(one) / math.sqrt(len(one)), float(len(one) - 1)) for one in known]
        return *combined(*parts), True
    (several,) = known
    count = max(1, min(map(len, samples)))
    return spread(several) * math.sqrt(1 / len(several) + 1 / count), float(len(several) - 1), True


def _p(cell: ArtefactCell, other: ArtefactCell | None, error: tuple[float, float, bool]) -> float:
    if other is None or cell.value is None or other.value is None or cell.value == other.value:
        return math.nan
    return p_value(cell.value - other.value, error[0], error[1])


def _change(
    cell: ArtefactCell, other: ArtefactCell | None, error: tuple[float, float, bool], p: float
) -> Change:
    values = (cell.value, other.value if other else None)
    outcome: Outcome
    if None in values:
        same = other is not None and values == (None, None) and cell.text == other.text
        outcome = "equal" if same else "missing"
    elif values[0] == values[1]:
        outcome = "equal"
    elif math.isnan(p):
        outcome = "not comparable"
    elif p > LEVEL:
        outcome = "within"
    else:
        outcome = "beyond" if error[2] else "beyond the measurement"
    return Change(cell.row, cell.column, cell.quantity, *values, error[0], p, outcome)


def _numbers(cell: ArtefactCell) -> Sequence[float]:
    return [value for value in cell.each if value is not None]
