"""Matrices of the pairs of clients, in the order of a hierarchical clustering: overlaps, and H_D."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from fedscope.figures import style
from fedscope.figures.client_matrix import Grid, draw_client_matrix, draw_color_bar
from fedscope.figures.clients.panels import NOTE_LINE, TITLE_LINE, TOP, lacking
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord

SMALLEST = 4.5  # numbers in the cells, in points
MOST_NAMED = 20

# inches
LEFT, RIGHT, GAP, BAR, BAR_LABELS, HEADING, BOTTOM = 0.45, 0.1, 0.55, 0.07, 0.22, 0.16, 0.34
LARGEST_SIDE = 2.6


def order_of(similarity: Grid) -> list[int]:
    """Return rows of a (K, K) similarity in the order of its hierarchical clustering, likest beside each
    other.

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


def matrices_of(record: ClientsRecord) -> list[tuple[str, Grid, bool]]:
    """Return the matrices that a record has: each one's name, numbers, and whether the global model is in."""
    grids: list[tuple[str, Grid, bool]] = []
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

    The order of the clients is that of the clustering of the first matrix; the global model stands last.
    ``among``: rounds that are drawn alike, in the order of the last one, where it has the same clients, and
    in colours for the numbers of all.
    """
    grids = matrices_of(record)
    if not grids:
        lacking(record, "matrix of pairs", "overlap,diagonals,barriers")
    count = len(record.clients)
    order = _order([one for one in among if one.numbers == record.numbers][-1] if among else record)
    ranges = _ranges(among or [record])
    across = len(grids) if width >= style.WIDE_COLUMN else 1
    rows = -(-len(grids) // across)
    side = min(LARGEST_SIDE, (width - LEFT - RIGHT - (across - 1) * GAP) / across)
    notes = "clients in the order of a hierarchical clustering of the first matrix (average linkage)"
    with style.paper_style():
        lines = wrapped(notes, width=width - 0.1, size=style.SMALL_SIZE)
        band = HEADING + side + BOTTOM + BAR + BAR_LABELS
        top = TOP + TITLE_LINE + 0.05
        page = Page(width=width, height=top + rows * band + NOTE_LINE * len(lines) + 0.04)
        title = wrapped(label(record.checkpoint), width=width, size=style.TITLE_SIZE)[0]
        page.write(title, center=width / 2, top=TOP, fontsize=style.TITLE_SIZE, fontweight="bold")
        page.write_notes(lines, top=top + rows * band, step=NOTE_LINE)
        total = across * side + (across - 1) * GAP
        for place, (name, grid, with_global) in enumerate(grids):
            row, column = divmod(place, across)
            left = LEFT + (width - LEFT - RIGHT - total) / 2 + column * (side + GAP)
            above = top + row * band
            page.write(style.typeset(name) if "$" not in name else name, center=left + side / 2, top=above,
                       fontsize=style.TEXT_SIZE)  # fmt: skip
            chosen = [*order, count] if with_global else order
            names = [str(record.numbers[i]) if i < count else "global" for i in chosen]
            square = grid[np.ix_(chosen, chosen)]
            _draw(page, square, names, ranges[name], left=left, top=above + HEADING, side=side)
    return page.figure


def _order(record: ClientsRecord) -> list[int]:
    name, grid, _ = matrices_of(record)[0]
    count = len(record.clients)
    first = grid[:count, :count]
    return order_of(-first if name.startswith("barriers") else first)


def _ranges(records: Sequence[ClientsRecord]) -> dict[str, Normalize]:
    """Return the colour scale of each matrix by its name: of the finite numbers beside the diagonal."""
    found: dict[str, list[float]] = {}
    for record in records:
        for name, grid, _ in matrices_of(record):
            beside = grid[~np.eye(len(grid), dtype=bool)]
            found.setdefault(name, []).extend(beside[np.isfinite(beside)])
    ends = {name: (min(shown), max(shown)) if shown else (0.0, 1.0) for name, shown in found.items()}
    return {name: Normalize(min(low, 0.0), high if high > 0 else 1.0) for name, (low, high) in ends.items()}


def _draw(
    page: Page, grid: Grid, names: Sequence[str], norm: Normalize, *, left: float, top: float, side: float
) -> None:
    axes = page.figure.add_axes(page.box(left=left, top=top, width=side, height=side))
    shown = grid.copy()
    np.fill_diagonal(shown, np.nan)
    draw_client_matrix(
        axes, shown, norm, names, most_named=MOST_NAMED, room=0.88 * side * POINTS / len(grid),
        smallest=SMALLEST,
    )  # fmt: skip
    bar_box = page.box(left=left, top=top + side + BOTTOM, width=side, height=BAR)
    draw_color_bar(page.figure, page.figure.add_axes(bar_box), norm)
