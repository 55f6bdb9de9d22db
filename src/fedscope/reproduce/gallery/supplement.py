"""What stands on a paper's page: its statements beside its own numbers, and the runs of all its artefacts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedscope.records.artefact import ArtefactRecord, UsedRun
from fedscope.reproduce.artefacts.claims import Statement
from fedscope.reproduce.gallery.cell_texts import paper_text
from fedscope.reproduce.gallery.render import titled

_HOUR = 3600.0


@dataclass(frozen=True)
class Spoken:
    """A statement with the numbers that the paper prints for it, and the page that judges it."""

    printed_in: str
    page: str
    statement: str
    printed: str
    evidence: tuple[str, ...]
    verdict: str


@dataclass(frozen=True)
class RunRow:
    """A run as the table of runs shows it."""

    run: str
    method: str
    seed: str
    round: str
    accuracy: str
    hours: str


def statements(record: ArtefactRecord, page: str) -> Iterator[Spoken]:
    for claim in record.claims:
        parts = Statement.read(claim.statement)
        rows = (parts.row, *([parts.other] if parts.other else []))
        printed = [f"{row} {value}" for row in rows if (value := _printed(record, row, parts.quantity))]
        statement = titled(record, claim.statement)
        yield Spoken(
            record.printed_in, page, statement, "; ".join(printed), tuple(claim.evidence), claim.verdict
        )


def used_runs(records: Sequence[ArtefactRecord]) -> list[RunRow]:
    """Return every run once, at the latest of its rounds that an artefact uses."""
    found = dict[str, UsedRun]()
    for record in records:
        for run in record.runs:
            if run.run not in found or found[run.run].round < run.round:
                found[run.run] = run
    return [
        RunRow(
            run.run,
            run.row,
            "–" if run.seed is None else str(run.seed),
            str(run.round),
            _number(100 * run.accuracy, "{:.2f} %"),
            hours(run),
        )
        for run in found.values()
    ]


def _printed(record: ArtefactRecord, row: str, quantity: str) -> str:
    cells = (cell for cell in record.entries if (cell.row, cell.quantity) == (row, quantity))
    return next((text for cell in cells if (text := paper_text(cell.paper))), "")


def hours(run: UsedRun) -> str:
    if run.settings.device == "cpu":
        return _number(run.core_seconds / _HOUR, "{:.1f}")
    return _number(run.core_seconds / _HOUR, "{:.2f} of a GPU")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)
