"""The clients of rounds on the page: tables and pictures of one round, and charts that follow the slider."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.colors import to_hex

from fedscope.figures import style
from fedscope.figures.clients.round_figures import MOST_CLIENTS, draw, panels_of
from fedscope.figures.figure_kinds import ClientsKind
from fedscope.figures.spectrum.matrices import matrices_of
from fedscope.figures.text.client_tables import clients_tables
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import label
from fedscope.records.client_quantities import ROUNDS_KINDS
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.run_record import RunRecord
from fedscope.report import html_page
from fedscope.report.plotly_panels import Chart, rounds_chart
from fedscope.report.sortable_table import SortableTable, told
from fedscope.report.subjects import SYMBOLS, Key, Subject, Subjects, key_of, legible, run_key

ALTS: Mapping[ClientsKind, str] = {
    "gap": "What was measured of each client, at its own weights and at the global ones.",
    "alignment": "Curvature along each client's update, and the update's share in the top eigenspace.",
    "drift": "The cost of averaging by orders, client by client.",
    "matrix": "A matrix of the pairs of clients, in the order of a clustering.",
}


def clients_by_round(runs: Sequence[RunRecord], given: Sequence[ClientsRecord], who: Subjects) -> list[Chart]:
    """Return the charts of the means over the clients, for the runs that have two rounds measured.

    ``given`` are records beside those that the runs have.
    """
    found = {who[key]: records for key, records in _of_subjects(runs, given)}
    samples = sorted({one.problem.samples for records in found.values() for one in records})
    numbers = " or ".join(f"{number:,}" for number in samples)
    caption = f"Means over the clients, weighted by p_k, on {numbers} samples of all; bands: 95 % intervals."
    charts = []
    for kind in ROUNDS_KINDS:
        panels = panels_of({subject.name: own for subject, own in found.items()}, kind) if found else []
        for place, panel in enumerate(panels):
            lines = [line.connected for line in panel.lines]
            lines = [line for line in lines if len(line.x) > 1]
            looks = {subject.name: subject for subject in found}
            if len(found) == 1:
                names = [line.label for line in panel.lines]
                looks = {name: _part(at, name or panel.y_label, len(names)) for at, name in enumerate(names)}
            if lines:
                own = replace(panel, parts=lines)
                charts.append(rounds_chart(f"clients-{kind}-{place}", own, looks, caption))
    return charts


def _part(place: int, name: str, count: int) -> Subject:
    """Return the look of a part of a sum; its index is that of no run, whose check box it does not follow."""
    color = to_hex(legible(style.method_colors(count)[place]))
    return Subject(-1 - place, name, color, "solid", SYMBOLS[place % len(SYMBOLS)])


def _of_subjects(
    runs: Sequence[RunRecord], given: Sequence[ClientsRecord]
) -> Iterator[tuple[Key, Sequence[ClientsRecord]]]:
    """Yield the records of each run on the number of samples that most of its rounds are measured on."""
    records: dict[Key, list[ClientsRecord]] = {run_key(run): list(run.clients) for run in runs}
    for one in given:
        records.setdefault(key_of(one.checkpoint), []).append(one)
    for key, own in records.items():
        by_samples: dict[int, list[ClientsRecord]] = {}
        for one in sorted(own, key=lambda one: -len(one.measured)):
            if one.checkpoint.round is not None:
                by_samples.setdefault(one.problem.samples, []).append(one)
        rounds = {n: len({one.checkpoint.round for one in found}) for n, found in by_samples.items()}
        most = max(rounds, key=lambda n: (rounds[n], n), default=None)
        if most is not None and rounds[most] > 1:
            yield key, by_samples[most]


def round_parts(records: Sequence[ClientsRecord]) -> list[dict[str, Any]]:
    return [
        {
            "title": label(record.checkpoint),
            "tables": [
                _sortable(table, f"round-{place}-{index}")
                for index, table in enumerate(clients_tables(record))
            ],
            "pictures": [
                {"src": html_page.picture(draw([record], kind, width=style.DOUBLE_COLUMN)), "alt": ALTS[kind]}
                for kind in _kinds(record)
            ],
        }
        for place, record in enumerate(records)
    ]


def _kinds(record: ClientsRecord) -> list[ClientsKind]:
    if len(record.clients) > MOST_CLIENTS:
        return []
    there: Mapping[ClientsKind, object] = {
        "gap": record.flatness,
        "alignment": record.alignment,
        "drift": record.averaging,
        "matrix": matrices_of(record),
    }
    return [kind for kind, part in there.items() if part]


def _sortable(table: Table, name: str) -> SortableTable:
    rows = tuple(tuple(map(told, row)) for row in table.rows)
    return SortableTable(name, table.title, table.columns, rows, table.notes)
