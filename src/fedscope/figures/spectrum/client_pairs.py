"""How much the clients' curvature differs: H_N and H_D of every pair of clients, as matrices."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from fedscope.choices import Reading
from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.client_matrix import Grid, draw_client_matrix, draw_color_bar
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.numbers import format_estimate
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Symbol
from fedscope.statistics.resolution import UNRESOLVED

MOST_CHECKPOINTS = 6
MOST_NAMED = 14  # clients that get a tick each
TYPESET: Mapping[Symbol, str] = {"H_N": "$H_N$", "H_D": "$H_D$"}
SMALLEST = 5.5  # numbers in the cells, in points

HATCHED = f"hatched: {UNRESOLVED}, out of its range or an interval that excludes nothing"

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.4, 0.1, 0.06, 0.34
GAP, BAR, BAR_LABELS = 0.25, 0.07, 0.32
TITLE_LINE, SMALL_LINE, UNDER_HEADER = 0.15, 0.115, 0.04


def client_matrix_figure(
    crossings: Sequence[CrossClientEntry],
    labels: Sequence[str],
    *,
    reading: Reading = "parameter",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw the clients × clients matrices of H_N and H_D side by side, a row per checkpoint.

    All rows share two colour scales; H_N's is logarithmic where all pairs are positive and span a decade,
    H_D's ends at 1. Values stand in the cells where there is room. Pairs of a client with itself, 0 and 1 by
    definition, are left white and crossed out; unresolved pairs are hatched and have no value, see
    :mod:`fedscope.statistics.resolution`. ``reading`` is of the diagonals: parameter or tensor; ``width`` is
    in inches.
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
    side = (width - 2 * LEFT - RIGHT - GAP) / 2
    with style.paper_style():
        headings = [[_mean(one, symbol, reading) for symbol in TYPESET] for one in crossings]
        header = TITLE_LINE + SMALL_LINE + UNDER_HEADER
        band = header + side + BOTTOM
        hatched = any(_unresolved(grid).any() for grids in matrices.values() for grid in grids)
        foot = SMALL_LINE * hatched
        page = Page(width=width, height=TOP + len(crossings) * band + BAR + BAR_LABELS + foot)
        for place, (symbol, grids) in enumerate(matrices.items()):
            norm, left = _norm(grids, symbol), LEFT + place * (side + GAP + LEFT)
            for row, grid in enumerate(grids):
                top = TOP + row * band
                page.write(headings[row][place], center=left + side / 2, top=top + TITLE_LINE,
                           fontsize=style.SMALL_SIZE, color=style.FAINT_INK)  # fmt: skip
                box = page.box(left=left, top=top + header, width=side, height=side)
                _draw(page.figure.add_axes(box), grid, norm, crossings[row].client_numbers, side)
            if any(np.isfinite(grid).any() for grid in grids):
                box = page.box(left=left, top=page.height - foot - BAR - BAR_LABELS, width=side, height=BAR)
                draw_color_bar(page.figure, page.figure.add_axes(box), norm, TYPESET[symbol])
        for row, label in enumerate(labels):
            (line, *_) = wrapped(label, width=width, size=style.TITLE_SIZE)
            page.write(line, center=width / 2, top=TOP + row * band, fontsize=style.TITLE_SIZE,
                       fontweight="bold")  # fmt: skip
        if hatched:
            page.write(HATCHED, center=width / 2, top=page.height - foot - 0.02, fontsize=style.SMALL_SIZE,
                       color=style.FAINT_INK)  # fmt: skip
    return page.figure


def _matrix(crossing: CrossClientEntry, symbol: Symbol, reading: Reading, label: str) -> Grid:
    found = crossing.matrix(symbol, reading)
    if found is None:
        raise UserError(
            f"the record of {label} has no {symbol} of pairs of clients in the {reading} reading; measure it "
            "again with 'fedscope hessian --clients --recompute --json FILE'"
        )
    grid = np.where(crossing.resolved(symbol, reading), np.array(found, dtype=np.float64), np.nan)
    np.fill_diagonal(grid, np.nan)
    return grid


def _mean(crossing: CrossClientEntry, symbol: Symbol, reading: Reading) -> str:
    estimate = crossing.mean(symbol, reading)
    pairs = "distinct pairs" if crossing.pairs == "distinct" else "all pairs with self-pairs"
    if estimate is None or not estimate.resolves(symbol):
        return f"{TYPESET[symbol]} over {pairs}: {UNRESOLVED}"
    value = style.typeset(format_estimate(estimate.value, estimate.stderr))
    return f"{TYPESET[symbol]} = {value}, mean over {pairs}"


def _norm(grids: Sequence[Grid], symbol: str) -> Normalize:
    finite = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if symbol == "H_D":
        return Normalize(min(low, 0.999), 1.0)
    if low > 0 and high > 10 * low:
        return LogNorm(low, high)
    return Normalize(min(low, 0.0), high if high > min(low, 0.0) else min(low, 0.0) + 1.0)


def _draw(axes: Axes, grid: Grid, norm: Normalize, clients: Sequence[int], side: float) -> None:
    for row, column in zip(*np.nonzero(_unresolved(grid)), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **style.HATCHED))
    draw_client_matrix(
        axes, grid, norm, [*map(str, clients)], most_named=MOST_NAMED,
        room=0.9 * (side * POINTS / len(grid)), smallest=SMALLEST,
    )  # fmt: skip


def _unresolved(grid: Grid) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = ~np.isfinite(grid) & ~np.eye(len(grid), dtype=bool)
    return found
