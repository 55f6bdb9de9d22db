"""The summary on top of the page: what is compared, the headline numbers, and the verdicts in sentences."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from fedscope.figures.digits import format_estimate
from fedscope.figures.text.advice import redrawn, who_is_who
from fedscope.figures.text.comparison_table import comparable, surprises
from fedscope.figures.text.labels import data_name
from fedscope.records.differences import Difference, differences, differences_to_first, judged
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.quantities import HEADLINES, Quantity
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis
from fedscope.report.curvature_tables import rows_of
from fedscope.report.round_charts import final_accuracy, partition_of
from fedscope.report.sortable_table import Cell, SortableTable, measured
from fedscope.report.subjects import Subjects, row_names

MARKS = {"lower": "lowest", "higher": "highest"}


@dataclass(frozen=True)
class Summary:
    """The top of the page."""

    facts: tuple[tuple[str, str], ...]  # name and value
    table: SortableTable
    verdicts: tuple[tuple[str, str], ...]  # quantity, and its verdict
    remark: str  # on records that are not compared, or contradict a paper


def summary(
    runs: Sequence[RunRecord],
    curvatures: Sequence[HessianRecord],
    landscapes: Sequence[LandscapeRecord],
    who: Subjects,
) -> Summary:
    facts = {"Trained": [_trained(run) for run in runs]}
    facts["Measured on"] = [_samples(record) for record in curvatures or landscapes]
    facts["Not at the end"] = [word for run in runs for word in _earlier(run, curvatures)]
    facts["Clients' models"] = [line for record in curvatures for line in who_is_who(record)]
    facts["Clients' rows"] = [word for record in curvatures if (word := redrawn(record))]
    names = dict(zip(map(id, curvatures), row_names(curvatures, who), strict=True))
    fitting = comparable(curvatures)
    found = sentences(fitting, [names[id(record)] for record in fitting])
    left = [names[id(record)] for record in curvatures if record not in fitting]
    remarks = [f"{surprise}." for surprise in surprises(fitting)]
    if left:
        first = names[id(fitting[0])]
        remarks.append(f"Not compared, as samples or settings are not {first}'s: {', '.join(left)}.")
    return Summary(
        tuple((name, " · ".join(dict.fromkeys(words))) for name, words in facts.items() if words),
        _table(runs, curvatures, who),
        tuple(found),
        " ".join(remarks),
    )


def _table(runs: Sequence[RunRecord], curvatures: Sequence[HessianRecord], who: Subjects) -> SortableTable:
    rows = rows_of(runs, curvatures)
    records = [row.record for row in rows if row.record]
    first, names = best(records), iter(row_names(records, who))
    crossed = any(record.cross_client for record in records)
    shown = [one for one in HEADLINES if crossed or not one.mean]
    body = []
    for row in rows:
        subject, record = who[row.key], row.record
        name = next(names) if record else subject.name
        marks = {
            quantity: MARKS[quantity.better] for quantity, place in first.items() if records[place] is record
        }
        accuracy = [final_accuracy(row.run)] if runs else []
        numbers = (measured(one.of(record) if record else None, marks.get(one)) for one in shown)
        body.append((Cell(name, name, subject.color), *accuracy, *numbers))
    columns = ("method", *["final accuracy (%)"] * bool(runs), *(one.column for one in shown))
    return SortableTable("summary-table", "Headline numbers", columns, tuple(body))


def _trained(run: RunRecord) -> str:
    settings, manifest = run.stated, run.manifest
    words = [f"{manifest.model.name} on {data_name(manifest.data.name)}", partition_of(settings)]
    words.append(None if settings.seed is None else f"seed {settings.seed}")
    return ", ".join(word for word in words if word)


def _earlier(run: RunRecord, curvatures: Sequence[HessianRecord]) -> Iterator[str]:
    last = run.metrics[-1].round if run.metrics else None
    for record in curvatures:
        place = record.checkpoint
        if place.run == run.name and place.round not in (None, last):
            yield f"curvature of round {place.round}, accuracy of round {last}"


def _samples(record: Analysis) -> str:
    problem = record.problem
    source = f" of {data_name(problem.dataset)}" if problem.dataset else ""
    split = f", {problem.split} split" if problem.split else ""
    seed = f", seed {problem.seed}" if problem.seed is not None else ""
    return f"{problem.samples:,} samples{source}{split}{seed}"


def best(records: Sequence[HessianRecord]) -> dict[Quantity, int]:
    """Return the quantities in which one record is decidedly better than every other, and its place.

    A quantity that one record lacks is left out; so are all where not all have the same samples.
    """
    found: dict[Quantity, int] = {}
    if len(comparable(records)) < len(records):
        return found
    pairs = list(combinations(range(len(records)), 2))
    rows = judged([differences(records[place], records[other]) for place, other in pairs])
    for quantity in HEADLINES:
        won = Counter(
            other if one.verdict == quantity.better else place
            for (place, other), row in zip(pairs, rows, strict=True)
            for one in row
            if one.quantity == quantity.symbol and one.verdict in ("lower", "higher")
        )
        for place, times in won.items():
            if times == len(records) - 1:
                found[quantity] = place
    return found


def sentences(records: Sequence[HessianRecord], names: Sequence[str]) -> list[tuple[str, str]]:
    rows = differences_to_first(records)
    found = []
    for quantity in HEADLINES if rows else ():
        pairs = [
            (name, one)
            for name, row in zip(names[1:], rows, strict=True)
            for one in row
            if one.quantity == quantity.symbol and not math.isnan(one.value)
        ]
        clauses = _clauses(quantity, names[0], pairs)
        shown = zip(names, map(quantity.compared, records), strict=True)
        if unclear := [name for name, one in shown if one and not one.is_resolved]:
            clauses.append(f"unresolved for {_listed(unclear)}")
        if clauses:
            found.append((quantity.symbol, "; ".join(clauses) + "."))
    return found


def _clauses(quantity: Quantity, reference: str, pairs: Sequence[tuple[str, Difference]]) -> list[str]:
    clauses = []
    said = (*(quantity.words or ()), "undecided against {reference}: {}")
    for verdict, words in zip(("lower", "higher", "undecided"), said, strict=True):
        named = [
            f"{name} ({_signed(one)}{f'; {one.reason}' if one.reason else ''})"
            for name, one in pairs
            if one.verdict == verdict
        ]
        if named:
            be = "is" if len(named) == 1 else "are"
            clauses.append(words.format(_listed(named), be=be, reference=reference))
    return clauses


def _signed(difference: Difference) -> str:
    return "+" * (difference.value > 0) + format_estimate(
        difference.value, difference.stderr, within=difference.bound
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
