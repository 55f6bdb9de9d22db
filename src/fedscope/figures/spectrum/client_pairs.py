"""How much the clients' curvature differs: H_N and H_D of every pair of clients, as matrices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedscope.choices import Reading
from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.digits import format_estimate
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Matrix, Panel, Ticks, Values
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Symbol
from fedscope.statistics.resolution import UNRESOLVED

MOST_CHECKPOINTS = 6
TYPESET: Mapping[Symbol, str] = {"H_N": "$H_N$", "H_D": "$H_D$"}
HATCHED = f"hatched: {UNRESOLVED}, out of its range or an interval that excludes nothing"
LEFT = 0.45  # inches


def client_matrix_figure(
    crossings: Sequence[CrossClientEntry],
    labels: Sequence[str],
    *,
    reading: Reading = "parameter",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw the clients × clients matrices of H_N and H_D side by side, a row per checkpoint.

    All rows share two colour scales. Pairs of a client with itself, 0 and 1 by definition, are crossed out;
    unresolved pairs are hatched, see :mod:`fedscope.statistics.resolution`.
    """
    if not 1 <= len(crossings) <= MOST_CHECKPOINTS:
        raise UserError(f"one figure shows 1 to {MOST_CHECKPOINTS} checkpoints, not {len(crossings)}")
    matrices = {
        symbol: [_matrix(one, symbol, reading, label) for one, label in zip(crossings, labels, strict=True)]
        for symbol in TYPESET
    }
    if not any(np.isfinite(grid).any() for grids in matrices.values() for grid in grids):
        raise UserError(
            f"H_N and H_D of all pairs of clients are {UNRESOLVED}, so there is nothing to draw: measure "
            "again with a larger --client-probes"
        )
    ranges = {symbol: range_of(grids, symbol) for symbol, grids in matrices.items()}
    panels = []
    for row, (crossing, label) in enumerate(zip(crossings, labels, strict=True)):
        names = [*map(str, crossing.client_numbers)]
        for symbol, grids in matrices.items():
            matrix = Matrix(grids[row], names, *ranges[symbol], title=TYPESET[symbol])
            panels.append(client_panel(matrix, style.typeset(label), _mean(crossing, symbol, reading)))
    return matrices_figure(panels, columns=2, width=width)


def client_panel(matrix: Matrix, title: str, head: str = "") -> Panel:
    named = Ticks(names=[*enumerate(matrix.names)])
    return Panel([matrix], "client", "client", title, head, x=named, y=named, grid="")


def matrices_figure(panels: Sequence[Panel], **layout: Any) -> Figure:
    parts = [part for panel in panels for part in panel.parts if isinstance(part, Matrix)]
    hatched = HATCHED * any(part.missing.any() for part in parts)
    notes = "; ".join(filter(None, [layout.pop("notes", ""), hatched]))
    return panels_figure(panels, shared=False, left=LEFT, notes=notes, **layout)


def _matrix(crossing: CrossClientEntry, symbol: Symbol, reading: Reading, label: str) -> Values:
    if crossing.matrix(symbol, reading) is None:
        raise UserError(
            f"the record of {label} has no {symbol} of pairs of clients in the {reading} reading; measure it "
            "again with 'fedscope hessian --clients --recompute --json FILE'"
        )
    return resolved_pairs(crossing, symbol, reading)


def resolved_pairs(crossing: CrossClientEntry, symbol: Symbol, reading: Reading) -> Values:
    """Return the record's matrix; NaN where a pair is not resolved, and on the diagonal."""
    found = np.array(crossing.matrix(symbol, reading), dtype=np.float64)
    grid = np.where(crossing.resolved(symbol, reading), found, np.nan)
    np.fill_diagonal(grid, np.nan)
    return grid


def _mean(crossing: CrossClientEntry, symbol: Symbol, reading: Reading) -> str:
    estimate = crossing.mean(symbol, reading)
    pairs = "distinct pairs" if crossing.pairs == "distinct" else "all pairs with self-pairs"
    if estimate is None or not estimate.is_resolved:
        return f"{TYPESET[symbol]} over {pairs}: {UNRESOLVED}"
    value = style.typeset(format_estimate(estimate.value, estimate.stderr))
    return f"{TYPESET[symbol]} = {value}, mean over {pairs}"


def range_of(grids: Sequence[Values], symbol: str) -> tuple[float, float, bool]:
    finite = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if symbol == "H_D":
        return min(low, 0.999), 1.0, False
    if low > 0 and high > 10 * low:
        return low, high, True
    return min(low, 0.0), high if high > min(low, 0.0) else min(low, 0.0) + 1.0, False
