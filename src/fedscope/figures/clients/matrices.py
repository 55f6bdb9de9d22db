"""Matrices of the pairs of clients, in the order of a hierarchical clustering: overlaps, and H_D."""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.panels import Matrix, Values
from fedscope.figures.spectrum.client_pairs import client_panel, matrices_figure
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord


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
        kinds = (("barriers", record.barriers.plain), ("barriers, matched", record.barriers.matched))
        grids += [(name, np.array(one.matrix, dtype=np.float64), False) for name, one in kinds if one]
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
    return order_of(-first if name.startswith("barriers") else first)


def _ranges(records: Sequence[ClientsRecord]) -> dict[str, tuple[float, float]]:
    found: dict[str, list[float]] = {}
    for record in records:
        for name, grid, _ in matrices_of(record):
            beside = grid[~np.eye(len(grid), dtype=bool)]
            found.setdefault(name, []).extend(beside[np.isfinite(beside)])
    ends = {name: (min(shown), max(shown)) if shown else (0.0, 1.0) for name, shown in found.items()}
    return {name: (min(low, 0.0), high if high > 0 else 1.0) for name, (low, high) in ends.items()}
