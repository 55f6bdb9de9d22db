"""The clients of each checkpoint: what was measured of each, and H_N and H_D of every pair."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fedscope.figures.report import look
from fedscope.figures.report.look import Chart
from fedscope.figures.report.metrics import READINGS, Cell, SortableTable
from fedscope.figures.report.subjects import Record, Subject
from fedscope.figures.rounding import format_estimate

Shown = Sequence[tuple[Subject, Record]]
SYMBOLS = ("H_N", "H_D")


def clients_table(shown: Shown) -> SortableTable | None:
    """Tabulate each client's trace, λ_max and overlap with the global model, where the records have them."""
    columns = ("trace ± probe", "λ_max ± data", "overlap")
    found = [(subject, row) for subject, record in shown for row in _rows(record.get("cross_client"))]
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
    return SortableTable("Client by client", ("method", "client", "round", *used), rows)


def pair_charts(shown: Shown) -> list[Chart]:
    """Return a heat map per checkpoint and metric of the pairs; each metric has one colour scale."""
    found = [
        (symbol, subject, *matrix)
        for symbol in SYMBOLS
        for subject, record in shown
        if (matrix := _matrix(record.get("cross_client"), symbol))
    ]
    charts = []
    for place, (symbol, subject, reading, values) in enumerate(found):
        every = [value for other, _, _, grid in found if other == symbol for value in _known(grid)]
        if every:
            charts.append(_heat_map(f"pairs-{place}", symbol, subject, reading, values, every))
    return charts


def _rows(cross: Record | None) -> Iterator[dict[str, Cell]]:
    if not cross:
        return
    count = cross["clients"]
    numbers = cross.get("numbers") or range(count)
    for i in range(count):
        row = {"client": Cell(str(numbers[i]), numbers[i])}
        if rounds := cross.get("rounds"):
            row["round"] = Cell(str(rounds[i]), rounds[i])
        if traces := cross.get("traces"):
            row["trace ± probe"] = _cell(traces[i], "stderr")
        if tops := cross.get("lambda_max"):
            row["λ_max ± data"] = _cell(tops[i], "stderr_data")
        if overlaps := cross.get("overlap"):
            row["overlap"] = Cell(format_estimate(overlaps[i]), overlaps[i])
        yield row


def _cell(entry: Record, error: str) -> Cell:
    return Cell(format_estimate(entry["value"], entry.get(error)), entry["value"])


def _matrix(cross: Record | None, symbol: str) -> tuple[str, list[list[float | None]]] | None:
    """Return the first reading that has any pair resolved, and its matrix without the diagonal."""
    matrices = (cross or {}).get("matrices") or {}
    for reading in READINGS:
        grid = (matrices.get(symbol) or {}).get(reading)
        pairs = [[None if i == j else v for j, v in enumerate(row)] for i, row in enumerate(grid or ())]
        if _known(pairs):
            return reading, pairs
    return None


def _heat_map(
    id: str, symbol: str, subject: Subject, reading: str, values: list[list[float | None]], every: list[float]
) -> Chart:
    logarithmic = symbol == "H_N" and min(every) > 0
    squeeze = math.log10 if logarithmic else float
    low, high = squeeze(min(every)), squeeze(max(every)) if symbol == "H_N" else 1.0
    marks = [low + (high - low) * i / 4 for i in range(5)]
    trace: dict[str, Any] = {
        "type": "heatmap",
        "z": look.numbers([[None if v is None else squeeze(v) for v in row] for row in values]),
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "text": [["" if v is None else look.plain(v) for v in row] for row in values],
        "texttemplate": "%{text}" if len(values) <= 12 else "",
        "hovertemplate": f"{symbol} of clients %{{y}} and %{{x}}: %{{text}}<extra></extra>",
        "colorscale": look.colorscale(),
        "colorbar": {
            "thickness": 12,
            "tickvals": marks,
            "ticktext": [look.plain(10**mark if logarithmic else mark) for mark in marks],
        },
    }
    layout = look.layout(
        "client", "client", showlegend=False, xaxis={"dtick": 1}, yaxis={"dtick": 1, "autorange": "reversed"}
    )
    caption = f"{symbol} of every pair of {subject.name}'s clients, from {READINGS[reading]}."
    alt = f"{caption} From {look.plain(min(_known(values)))} to {look.plain(max(_known(values)))}."
    return Chart(id, alt, caption, [trace], layout)


def _known(grid: Sequence[Sequence[float | None]]) -> list[float]:
    return [value for row in grid for value in row if value is not None]
