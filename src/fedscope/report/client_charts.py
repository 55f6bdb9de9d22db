"""The clients of each checkpoint: a table of their measurements, and heat maps of their pairs."""

from collections.abc import Iterator

import numpy as np

from fedscope.choices import Reading
from fedscope.figures.clients.matrices import client_panel, range_of, resolved_pairs
from fedscope.figures.digits import format_estimate
from fedscope.figures.panels import Matrix, Values
from fedscope.records.cross_client_entry import READINGS, CrossClientEntry
from fedscope.records.estimates import SYMBOLS, Symbol
from fedscope.report.plotly_panels import Chart, chart
from fedscope.report.sortable_table import Cell, SortableTable, measured, told
from fedscope.report.subjects import Shown


def clients_table(shown: Shown) -> SortableTable | None:
    columns = ("trace ± probe", "λ_max ± data", "overlap")
    found = [
        (subject, row)
        for subject, record in shown
        if record.cross_client
        for row in _rows(record.cross_client)
    ]
    used = [name for name in columns if any(name in row for _, row in found)]
    if not used:
        return None
    rows = tuple(
        (
            Cell(subject.name, subject.name, subject.color),
            *(row.get(name, Cell("–")) for name in ("client", "round", *used)),
        )
        for subject, row in found
    )
    return SortableTable("clients-table", "Client by client", ("method", "client", "round", *used), rows)


def _rows(cross: CrossClientEntry) -> Iterator[dict[str, Cell]]:
    for place, number in enumerate(cross.client_numbers):
        row = {"client": Cell(str(number), number)}
        if cross.rounds:
            row["round"] = Cell(str(cross.rounds[place]), cross.rounds[place])
        if cross.traces:
            row["trace ± probe"] = measured(cross.traces[place])
        if cross.lambda_max:
            row["λ_max ± data"] = measured(cross.lambda_max[place])
        if cross.overlap:
            row["overlap"] = told(format_estimate(cross.overlap[place]))
        yield row


def pair_charts(shown: Shown) -> dict[str, list[Chart]]:
    """Return a heat map of the pairs per checkpoint, by metric; those of one reading share a colour scale."""
    charts: dict[str, list[Chart]] = {}
    for symbol in SYMBOLS:
        found = [
            (subject, record.cross_client, *first)
            for subject, record in shown
            if record.cross_client and (first := _first(record.cross_client, symbol))
        ]
        grids: dict[Reading, list[Values]] = {}
        for _, _, reading, grid in found:
            grids.setdefault(reading, []).append(grid)
        for place, (subject, cross, reading, grid) in enumerate(found):
            name, ends = f"{symbol} ({reading})", range_of(grids[reading], symbol)
            matrix = Matrix(grid, [*map(str, cross.client_numbers)], *ends, title=name)
            caption = (
                f"{name} of {subject.name}'s clients, pair by pair; their mean: "
                f"{measured(cross.mean(symbol, reading)).text}."
            )
            caption += " Grey: unresolved." * bool(matrix.missing.any())
            panel = client_panel(matrix, "")
            one = chart(
                f"{symbol}-{place}", panel, {}, alt=caption, caption=caption, yaxis={"autorange": "reversed"}
            )
            charts.setdefault(symbol, []).append(one)
    return charts


def _first(cross: CrossClientEntry, symbol: Symbol) -> tuple[Reading, Values] | None:
    for reading in READINGS:
        if cross.matrix(symbol, reading) is not None:
            grid = resolved_pairs(cross, symbol, reading)
            if np.isfinite(grid).any():
                return reading, grid
    return None
