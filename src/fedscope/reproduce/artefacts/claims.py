"""The orderings that a paper's table claims, and whether the numbers here confirm them.

A statement is ``A < B in QUANTITY``, ``A > B in QUANTITY``, ``A lowest in QUANTITY`` or ``A highest in
QUANTITY``, of rows. It is judged under every column where the rows are, unless the paper's own numbers there
say otherwise: it *holds* where each difference lies on the claimed side of zero, it *does not hold* where one
lies on the other side, and is *undecided* where one may be zero, or while a row is missing. Over several
columns it holds if it holds in all, and does not if it does not in one. The differences behind all statements
of a page are judged together (:func:`fedscope.records.differences.judged`): all verdicts are right with 95 %.
With one seed, and no known spread between trainings, a verdict is on these runs, not on the methods.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fedscope.federated.setup.paper_presets import preset
from fedscope.figures.digits import format_estimate
from fedscope.records.artefact import Claim, PaperValue
from fedscope.records.differences import Difference, judged
from fedscope.reproduce.artefacts.row_differences import (
    Sample,
    Samples,
    SeedSpread,
    difference,
    spread_between_seeds,
)
from fedscope.reproduce.recipes.spec import Recipe, printed
from fedscope.reproduce.recipes.table_quantities import QUANTITIES

Verdict = Literal["holds", "does not hold", "undecided"]
_STATEMENT = re.compile(
    r"(?P<row>.+?) (?:(?P<sign>[<>]) (?P<other>.+)|(?P<end>lowest|highest)) in (?P<quantity>\w+)"
)


@dataclass(frozen=True)
class Statement:
    """A statement in its parts."""

    row: str
    quantity: str
    less: bool
    other: str | None  # None: all other rows

    @classmethod
    def read(cls, text: str) -> "Statement":
        found = _STATEMENT.fullmatch(text)
        if not found or found["quantity"] not in QUANTITIES:
            raise ValueError(f"{text!r} is no statement")
        less = found["sign"] == "<" or found["end"] == "lowest"
        return cls(found["row"], found["quantity"], less, found["other"])

    def contradicted(self, values: Mapping[str, float]) -> bool:
        others = [values[row] for row in values if row != self.row and self.other in (None, row)]
        mine = values.get(self.row)
        return mine is not None and any(other < mine if self.less else other > mine for other in others)


Printed = Mapping[str, Mapping[str, float]]  # column → row → the paper's number of the quantity


def judge(
    texts: Sequence[str],
    samples: Samples,
    columns: Sequence[str],
    rows: Sequence[str],
    papers: Sequence[Printed] = (),
    borrowed: Mapping[str, SeedSpread] | None = None,
) -> list[Claim]:
    """Return the verdicts on the statements ``texts``, each with its printed numbers in ``papers``."""
    statements = [Statement.read(text) for text in texts]
    places = [
        [
            _Place(statement, column, samples, rows, paper.get(column, {}), borrowed or {})
            for column in columns
        ]
        for statement, paper in zip(statements, papers or [{}] * len(texts), strict=True)
    ]
    family = _Family([place for of_one in places for place in of_one])
    return [_judged(text, of_one, family) for text, of_one in zip(texts, places, strict=True)]


class _Place:
    """A statement under a column: its row, and those that it is compared with."""

    def __init__(
        self,
        statement: Statement,
        column: str,
        samples: Samples,
        rows: Sequence[str],
        printed: Mapping[str, float],
        borrowed: Mapping[str, SeedSpread],
    ) -> None:
        self.statement, self.column = statement, column
        own = spread_between_seeds(samples, column, statement.quantity)
        self.spread = own or borrowed.get(statement.quantity)
        self.there = {row: sample for (row, at, name), sample in samples.items()
                      if (at, name) == (column, statement.quantity) and _known(sample)}  # fmt: skip
        rivals = [row for row in rows if row != statement.row]
        others = [statement.other] if statement.other else [row for row in rivals if row in self.there]
        complete = statement.row in self.there and all(other in self.there for other in others)
        self.absent = [] if statement.other else [row for row in rivals if row not in self.there]
        self.contradicted = statement.contradicted({row: printed[row] for row in printed if row in rows})
        self.known = bool(others) and complete
        self.lacking = [row for row in (statement.row, *(others or rivals)) if row not in self.there]
        self.others = others if self.known and not self.contradicted else []


class _Family:
    """The differences behind all statements, judged together; each pair of rows counts once."""

    def __init__(self, places: Sequence[_Place]) -> None:
        found: dict[tuple[str, str, str, str], Difference] = {}
        for place in places:
            for other in place.others:
                key, ours, theirs = self._pair(place, other)
                if key not in found and not _apart(ours, theirs):
                    found[key] = difference(place.statement.quantity, ours, theirs, place.spread)
        self._known = dict(zip(found, *judged([list(found.values())]), strict=True))

    def of(self, place: _Place, other: str) -> Difference:
        """Return the row's difference to another one; it stands alone where the two are no pair."""
        key, ours, theirs = self._pair(place, other)
        found = self._known.get(key) or difference(place.statement.quantity, ours, theirs, place.spread)
        return found if key[2] == place.statement.row else replace(found, value=-found.value)

    def _pair(self, place: _Place, other: str) -> tuple[tuple[str, str, str, str], Sample, Sample]:
        first, second = sorted([place.statement.row, other])
        key = (place.statement.quantity, place.column, first, second)
        return key, place.there[first], place.there[second]


def _judged(text: str, places: Sequence[_Place], family: _Family) -> Claim:
    verdicts: list[Verdict] = []
    evidence = []
    for place in places:
        heading = f"{place.column}: " if place.column else ""
        if place.known and place.contradicted:
            evidence.append(f"{heading}not judged, since the paper's own numbers say otherwise")
        if not place.others:
            continue
        found = [_compare(place, other, family.of(place, other)) for other in place.others]
        verdict = _worst([one.verdict for one in found])
        lacking = f"; without {', '.join(place.absent)}" if place.absent else ""
        evidence.append(heading + _short(found, verdict) + lacking)
        verdicts.append("undecided" if place.absent and verdict == "holds" else verdict)
    if not verdicts:
        absent = dict.fromkeys(row for place in places for row in place.lacking)
        evidence = evidence or [f"no value of {' and of '.join(absent)}"]
        return Claim(statement=text, verdict="undecided", evidence=tuple(evidence))
    return Claim(statement=text, verdict=_worst(verdicts), evidence=tuple(evidence))


def _known(sample: Sample) -> bool:
    return bool(sample.numbers) and all(number.value is not None for number in sample.numbers)


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    order: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
    return next(verdict for verdict in order if verdict in verdicts)


@dataclass(frozen=True)
class _Compared:
    """One row against another."""

    verdict: Verdict
    lead: float  # how far it is on the claimed side
    shown: str


def _short(found: Sequence[_Compared], verdict: Verdict) -> str:
    """Return the evidence for a verdict: of several rows, the one that decides."""
    telling = sorted((one for one in found if one.verdict == verdict), key=lambda one: one.lead)
    if len(found) == 1:
        return telling[0].shown
    which = "nearest" if verdict == "holds" else f"{len(telling)} of {len(found)}"
    word = "" if verdict == "holds" else f" {'against' if verdict == 'does not hold' else verdict}"
    return f"{which}{word}: {telling[0].shown}"


def _compare(place: _Place, name: str, found: Difference) -> _Compared:
    statement, ours, theirs = place.statement, place.there[place.statement.row], place.there[name]
    lead, known = -found.value if statement.less else found.value, not math.isnan(found.stderr)
    errors = [found.stderr] if known and found.stderr else []
    shown = f"{statement.row} − {name} = {format_estimate(found.value, *errors)}"
    if apart := _apart(ours, theirs):
        return _Compared("undecided", lead, f"{shown}, but {apart}")
    if not known:
        return _Compared("undecided", lead, f"{shown}, of no known error")
    single = min(len(ours.numbers), len(theirs.numbers)) == 1
    seeds = single and not QUANTITIES[statement.quantity].static
    told = [f"one seed{_borrowed(place.spread)}"] * seeds + [found.reason] * bool(found.reason)
    shown += f" ({'; '.join(told)})" * bool(told)
    if found.verdict == "undecided":
        return _Compared("undecided", lead, shown)
    return _Compared("holds" if lead > 0 else "does not hold", lead, shown)


def _borrowed(spread: SeedSpread | None) -> str:
    if spread is None:
        return ""
    return f"; spread between trainings of {spread.source or ' and '.join(spread.rows)}"


def _apart(ours: Sample, theirs: Sample) -> str | None:
    """Say what keeps two rows from being compared: their rounds, or their training data."""
    if ours.round != theirs.round:
        return f"after {_at(ours)} and {_at(theirs)}"
    known = ours.data and theirs.data
    return "trained on different data" if known and ours.data != theirs.data else None


def _at(sample: Sample) -> str:
    return "several rounds" if sample.round is None else f"{sample.round} rounds"


def borrowed_spreads(recipe: Recipe, elsewhere: Samples) -> dict[str, SeedSpread]:
    """Return the spreads by quantity; ``elsewhere`` is one column of another recipe."""
    places = sorted({(name, column) for _, column, name in elsewhere})
    measured = {name: spread_between_seeds(elsewhere, column, name) for name, column in places}
    source = recipe.spread_of[0] if recipe.spread_of else ""
    ours = {name: replace(spread, source=source) for name, spread in measured.items() if spread}
    theirs = {name: spread for name in _of_claims(recipe) if (spread := _printed_spread(recipe, name))}
    return {**theirs, **ours}


def borrowed_notes(recipe: Recipe, samples: Samples, spreads: Mapping[str, SeedSpread]) -> list[str]:
    found: dict[str, list[str]] = {}
    for name in _of_claims(recipe):
        columns = {column for _, column, other in samples if other == name}
        alone = any(not spread_between_seeds(samples, column, name) for column in columns)
        if alone and (one := spreads.get(name)):
            size = f"{100 * one.value if one.relative else one.value:.2g}{' %' * one.relative}"
            found.setdefault(_origin(recipe, one), []).append(f"{QUANTITIES[name].title} {size}")
    return [f"spread between trainings: {origin}: {', '.join(sizes)}" for origin, sizes in found.items()]


def _origin(recipe: Recipe, spread: SeedSpread) -> str:
    if not spread.rows:
        return "of the deviations that the paper prints"
    return f"of the seeds of {' and '.join(spread.rows)} in {' under '.join(recipe.spread_of or ())}"


def _of_claims(recipe: Recipe) -> list[str]:
    return list(dict.fromkeys(Statement.read(text).quantity for text in recipe.claims))


def _printed_spread(recipe: Recipe, quantity: str) -> SeedSpread | None:
    """Return the deviation between a paper's trainings, pooled over its cells."""
    relative, squares, dof = QUANTITIES[quantity].measure is not None, 0.0, 0
    for paper, trainings in _printed(recipe, quantity):
        if paper.number and paper.spread:
            squares += (trainings - 1) * (paper.spread / (paper.number if relative else 1.0)) ** 2
            dof += trainings - 1
    return SeedSpread(math.sqrt(squares / dof), dof, relative, (), "the paper") if dof else None


def _printed(recipe: Recipe, quantity: str) -> Iterator[tuple[PaperValue, int]]:
    """Yield every printed cell of a quantity, and the number of trainings that it is of."""
    columns = {column.published or label: column.preset for label, column in recipe.columns.items()}
    for label, experiment in columns.items():
        for row in recipe.rows:
            if paper := printed(recipe.name, row, label, quantity):
                yield paper, len(preset(experiment).seeds)
