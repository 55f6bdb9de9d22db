"""The clients of each checkpoint: a table of their measurements, and heat maps of their pairs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedscope.choices import Reading
from fedscope.records.cross_client_entry import READINGS, CrossClientEntry
from fedscope.records.estimates import SYMBOLS, Symbol
from fedscope.report import look
from fedscope.report.cells import Cell, SortableTable, measured, related
from fedscope.report.look import Chart
from fedscope.report.subjects import Shown, Subject

UNRESOLVED_FILL = "#767676"  # stands out from white and from dark paper
MOST_WRITTEN = 12  # clients, up to which every cell shows its number


def clients_table(shown: Shown) -> SortableTable | None:
    """Tabulate each client's trace, λ_max and overlap with the global model, where the records have them."""
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
            row["trace ± probe"] = measured(cross.traces[place].value, cross.traces[place].stderr)
        if cross.lambda_max:
            top = cross.lambda_max[place]
            row["λ_max ± data"] = measured(top.value, top.stderr_data, within=top.residual)
        if cross.overlap:
            row["overlap"] = measured(cross.overlap[place])
        yield row


@dataclass(frozen=True)
class _Matrix:
    """The pairs of one checkpoint's clients."""

    subject: Subject
    name: str  # "H_N (tensor)"
    values: list[list[float]]  # NaN on the diagonal and where unresolved
    unresolved: list[tuple[int, int]]
    mean: str

    @property
    def known(self) -> list[float]:
        return [value for row in self.values for value in row if not math.isnan(value)]


def pair_charts(shown: Shown) -> dict[str, list[Chart]]:
    """Return a heat map of the pairs per checkpoint, by metric; those of one reading share a colour scale."""
    charts: dict[str, list[Chart]] = {}
    for symbol in SYMBOLS:
        found = [_first(subject, record.cross_client, symbol) for subject, record in shown]
        matrices = [matrix for matrix in found if matrix]
        scales: dict[str, list[float]] = {}
        for matrix in matrices:
            scales.setdefault(matrix.name, []).extend(matrix.known)
        if matrices:
            charts[symbol] = [
                _heat_map(f"{symbol}-{place}", matrix, scales[matrix.name])
                for place, matrix in enumerate(matrices)
            ]
    return charts


def _first(subject: Subject, cross: CrossClientEntry | None, symbol: Symbol) -> _Matrix | None:
    matrices = (_matrix(subject, cross, symbol, reading) for reading in READINGS) if cross else ()
    return next((matrix for matrix in matrices if matrix and matrix.known), None)


def _matrix(subject: Subject, cross: CrossClientEntry, symbol: Symbol, reading: Reading) -> _Matrix | None:
    grid, resolved = cross.matrix(symbol, reading), cross.resolved(symbol, reading)
    if grid is None:
        return None
    pairs = [(i, j) for i in range(len(grid)) for j in range(len(grid)) if i != j]
    values = [[math.nan] * len(grid) for _ in grid]
    for i, j in pairs:
        values[i][j] = grid[i][j] if resolved[i][j] else math.nan
    unresolved = [(i, j) for i, j in pairs if math.isnan(values[i][j])]
    mean = related(cross.mean(symbol, reading), symbol).text
    return _Matrix(subject, f"{symbol} ({reading})", values, unresolved, mean)


def _heat_map(id: str, matrix: _Matrix, every: list[float]) -> Chart:
    squared = matrix.name.startswith("H_N")
    logarithmic = squared and min(every) > 0
    squeeze = math.log10 if logarithmic else float
    low, high = squeeze(min(every)), squeeze(max(every)) if squared else 1.0
    marks = [low + (high - low) * i / 4 for i in range(5)]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": look.numbers([[v if math.isnan(v) else squeeze(v) for v in row] for row in matrix.values]),
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "text": [["" if math.isnan(v) else look.plain(v) for v in row] for row in matrix.values],
        "texttemplate": "%{text}" if len(matrix.values) <= MOST_WRITTEN else "",
        "hovertemplate": f"{matrix.name} of clients %{{y}} and %{{x}}: %{{text}}<extra></extra>",
        "hoverongaps": False,
        "colorscale": look.colorscale(),
        "colorbar": {
            "thickness": 12,
            "tickvals": marks,
            "ticktext": [look.plain(10**mark if logarithmic else mark) for mark in marks],
        },
    }
    axis = {"dtick": 1 if len(matrix.values) <= MOST_WRITTEN else None, "showgrid": False}
    layout = look.layout(
        "client", "client", showlegend=False, xaxis=axis, yaxis={**axis, "autorange": "reversed"}
    )
    caption = f"{matrix.name} of {matrix.subject.name}'s clients, pair by pair; their mean: {matrix.mean}."
    if matrix.unresolved:
        caption += " Grey: unresolved."
    traces = [trace, _unresolved(matrix)] if matrix.unresolved else [trace]
    return Chart(id, caption, caption, traces, layout)


def _unresolved(matrix: _Matrix) -> dict[str, Any]:
    """Return the grey cells of what is unresolved; plotly writes on them in white."""
    count = len(matrix.values)
    places = set(matrix.unresolved)
    return {
        "type": "heatmap",
        "z": [[1 if (i, j) in places else None for j in range(count)] for i in range(count)],
        "colorscale": [[0, UNRESOLVED_FILL], [1, UNRESOLVED_FILL]],
        "showscale": False,
        "texttemplate": "?" if count <= MOST_WRITTEN else "",
        "hovertemplate": f"{matrix.name} of clients %{{y}} and %{{x}}: unresolved<extra></extra>",
        "hoverongaps": False,
    }
