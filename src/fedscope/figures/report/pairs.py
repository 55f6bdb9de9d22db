"""Heat maps of the pairs of clients: H_N and H_D of each pair, their mean and its error in the caption."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedscope.figures.report import look
from fedscope.figures.report.cells import compared
from fedscope.figures.report.look import Chart
from fedscope.figures.report.metrics import READINGS
from fedscope.figures.report.subjects import Record, Subject
from fedscope.resolution import pairs_resolved

SYMBOLS = ("H_N", "H_D")
MOST_WRITTEN = 12  # clients, up to whom every cell says its number


@dataclass(frozen=True)
class _Matrix:
    """The pairs of one checkpoint's clients: rows of numbers, ``None`` where there is none."""

    subject: Subject
    name: str  # "H_N (tensor)"
    values: list[list[float | None]]  # without the diagonal and what is unresolved
    unresolved: list[tuple[int, int]]
    mean: str

    @property
    def known(self) -> list[float]:
        return [value for row in self.values for value in row if value is not None]


def pair_charts(shown: Sequence[tuple[Subject, Record]]) -> list[Chart]:
    """Return a heat map per checkpoint and metric of the pairs; each metric has one colour scale."""
    found = [
        matrix
        for symbol in SYMBOLS
        for subject, record in shown
        if (matrix := _first(subject, record.get("cross_client"), symbol))
    ]
    charts = []
    for place, matrix in enumerate(found):
        every = [value for other in found if other.name == matrix.name for value in other.known]
        charts.append(_heat_map(f"pairs-{place}", matrix, every))
    return charts


def _first(subject: Subject, cross: Record | None, symbol: str) -> _Matrix | None:
    """Return the matrix of the first reading that has any pair resolved."""
    matrices = (cross or {}).get("matrices") or {}
    for reading in READINGS:
        if cross and (matrices.get(symbol) or {}).get(reading):
            found = _matrix(subject, cross, symbol, reading)
            if found.known:
                return found
    return None


def _matrix(subject: Subject, cross: Record, symbol: str, reading: str) -> _Matrix:
    grid, resolved = cross["matrices"][symbol][reading], pairs_resolved(cross, symbol, reading)
    pairs = [(i, j) for i in range(len(grid)) for j in range(len(grid)) if i != j]
    values: list[list[float | None]] = [[None] * len(grid) for _ in grid]
    for i, j in pairs:
        values[i][j] = grid[i][j] if resolved[i][j] else None
    unresolved = [(i, j) for i, j in pairs if values[i][j] is None]
    mean = compared(cross[symbol][reading], symbol).text
    return _Matrix(subject, f"{symbol} ({reading})", values, unresolved, mean)


def _heat_map(id: str, matrix: _Matrix, every: list[float]) -> Chart:
    squared = matrix.name.startswith("H_N")
    logarithmic = squared and min(every) > 0
    squeeze = math.log10 if logarithmic else float
    low, high = squeeze(min(every)), squeeze(max(every)) if squared else 1.0
    marks = [low + (high - low) * i / 4 for i in range(5)]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": look.numbers([[None if v is None else squeeze(v) for v in row] for row in matrix.values]),
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "text": [["" if v is None else look.plain(v) for v in row] for row in matrix.values],
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
        caption += " “?”: the pair is unresolved."
    traces = [trace, _unresolved(matrix)] if matrix.unresolved else [trace]
    return Chart(id, caption, caption, traces, layout)


def _unresolved(matrix: _Matrix) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [j for _, j in matrix.unresolved],
        "y": [i for i, _ in matrix.unresolved],
        "text": ["?"] * len(matrix.unresolved),
        "hovertemplate": f"{matrix.name} of clients %{{y}} and %{{x}}: unresolved<extra></extra>",
    }
