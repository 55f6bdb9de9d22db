"""Matrices of the pairs of clients: H_N and H_D, overlaps of eigenspaces, barriers."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from fedscope.choices import Reading
from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.digits import format_estimate
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Matrix, Panel, Ticks, Values
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Symbol
from fedscope.statistics.resolution import UNRESOLVED

MOST_CHECKPOINTS = 6
TYPESET: Mapping[Symbol, str] = {"H_N": "$H_N$", "H_D": "$H_D$"}
HATCHED = f"hatched: {UNRESOLVED}, out of its range or an interval that excludes nothing"
LEFT = 0.45  # inches


def lacking(record: ClientsRecord, part: str, only: str) -> NoReturn:
    raise UserError(
        f"the record of {label(record.checkpoint)} has no {part}: measure it with 'fedscope clients --only "
        f"{only} --json FILE'"
    )


def order_of(similarity: Values) -> list[int]:
    """Return the rows of a (K, K) similarity in the order of its hierarchical clustering.

    Average linkage on what the similarity lacks of its largest, leaves ordered so that neighbours are as
    alike as can be (Bar-Joseph, Gifford and Jaakkola 2001). Pairs without a value are as unlike as any.
    """
    count = len(similarity)
    if count < 3:
        return list(range(count))
    off = ~np.eye(count, dtype=bool)
    known = similarity[off & np.isfinite(similarity)]
    if not known.size:
        return list(range(count))
    full = np.where(np.isfinite(similarity), similarity, known.min())
    distance = known.max() - (full + full.T) / 2
    np.fill_diagonal(distance, 0)
    flat = squareform(np.maximum(distance, 0), checks=False)
    return [int(i) for i in leaves_list(optimal_leaf_ordering(linkage(flat, "average"), flat))]


def matrices_of(record: ClientsRecord) -> list[tuple[str, Values, bool]]:
    """Return each matrix' name and numbers, and whether the global model is in."""
    grids: list[tuple[str, Values, bool]] = []
    if record.overlap:
        name = f"overlap of the top {record.overlap.k}"
        grids.append((name, np.array(record.overlap.matrix, dtype=np.float64), True))
    cross = record.cross_client
    matrix = cross.matrix("H_D", "parameter") if cross else None
    if matrix is not None:
        grids.append(("$H_D$ of diagonals", np.array(matrix, dtype=np.float64), False))
    if record.barriers:
        grids.append(("barriers", np.array(record.barriers.matrix, dtype=np.float64), False))
    return grids


def matrix_figure(
    record: ClientsRecord, *, width: float = style.SINGLE_COLUMN, among: Sequence[ClientsRecord] = ()
) -> Figure:
    """Draw of every two clients the overlap of eigenspaces, H_D and the barrier, as far as measured.

    ``among``: rounds that are drawn alike, in the order of the last one, where it has the same clients.
    """
    grids = matrices_of(record)
    if not grids:
        lacking(record, "matrix of pairs", "overlap,diagonals,barriers")
    count = len(record.clients)
    order = _order([one for one in among if one.numbers == record.numbers][-1] if among else record)
    ranges = _ranges(among or [record])
    panels = []
    for name, grid, with_global in grids:
        chosen = [*order, count] if with_global else order
        names = [str(record.numbers[i]) if i < count else "global" for i in chosen]
        panels.append(client_panel(Matrix(grid[np.ix_(chosen, chosen)], names, *ranges[name]), name))
    return matrices_figure(
        panels, columns=len(grids) if width >= style.WIDE_COLUMN else 1, width=width,
        title=label(record.checkpoint),
        notes="clients in the order of a hierarchical clustering of the first matrix (average linkage)",
    )  # fmt: skip


def _order(record: ClientsRecord) -> list[int]:
    name, grid, _ = matrices_of(record)[0]
    count = len(record.clients)
    first = grid[:count, :count]
    return order_of(-first if name == "barriers" else first)


def _ranges(records: Sequence[ClientsRecord]) -> dict[str, tuple[float, float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, grid, _ in matrices_of(record):
            beside = grid[~np.eye(len(grid), dtype=bool)]
            found.setdefault(name, []).extend(beside[np.isfinite(beside)])
    ends = {name: (min(shown), max(shown)) if shown else (0.0, 1.0) for name, shown in found.items()}
    return {name: (min(low, 0.0), high if high > 0 else 1.0) for name, (low, high) in ends.items()}


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
    for row, (crossing, name) in enumerate(zip(crossings, labels, strict=True)):
        names = [*map(str, crossing.client_numbers)]
        for symbol, grids in matrices.items():
            matrix = Matrix(grids[row], names, *ranges[symbol], title=TYPESET[symbol])
            panels.append(client_panel(matrix, style.typeset(name), _mean(crossing, symbol, reading)))
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
