"""A square matrix of clients: cells in colour, numbers where there is room, and the bar of colours."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.label_placement import text_size

LARGEST = 6.0  # numbers in the cells, in points

Grid = NDArray[np.float64]


def draw_client_matrix(
    axes: Axes,
    grid: Grid,
    norm: Normalize,
    names: Sequence[str],
    *,
    most_named: int,
    room: float,
    smallest: float,
) -> None:
    """Draw a (K, K) matrix; what is not finite is left white, and the diagonal crossed out.

    Args:
        axes: of the matrix.
        grid: the values; NaN on the diagonal.
        norm: of the colours.
        names: of the K clients.
        most_named: clients that have a tick each.
        room: the width that a cell has for its number [points].
        smallest: size of the numbers; where it does not fit, none is written [points].
    """
    count = len(grid)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), xlabel="client", ylabel="client")
    edges, colors = np.arange(count + 1) - 0.5, style.loss_colormap()
    axes.pcolormesh(
        edges, edges, np.ma.masked_invalid(grid), cmap=colors, norm=norm, edgecolors="face", linewidth=0.1
    )
    for i in range(count):
        axes.plot([i - 0.5, i + 0.5], [i - 0.5, i + 0.5], color="0.7", linewidth=0.4, zorder=1)
    every = -(-count // most_named)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(range(0, count, every), list(names[::every]))
        axis.set_tick_params(length=0)
    _write_values(axes, grid, norm, room=room, smallest=smallest)


def _write_values(axes: Axes, grid: Grid, norm: Normalize, *, room: float, smallest: float) -> None:
    texts = {
        (row, column): format_value(grid[row, column], digits=2)
        for row, column in zip(*np.nonzero(np.isfinite(grid)), strict=True)
    }
    widest = max((text_size(text, LARGEST)[0] for text in texts.values()), default=0.0)
    size = min(LARGEST, room / widest * LARGEST) if widest else 0.0
    if size < smallest:
        return
    for (row, column), text in texts.items():
        ink = style.ink_on(style.loss_colormap()(norm(grid[row, column])))
        axes.text(column, row, text, fontsize=size, color=ink, ha="center", va="center_baseline")


def draw_color_bar(figure: Figure, axes: Axes, norm: Normalize, name: str = "") -> None:
    """Draw the bar of a matrix's colours in ``axes``, with a name where it has one."""
    log = isinstance(norm, LogNorm)
    bar = figure.colorbar(
        ScalarMappable(norm, style.loss_colormap()), cax=axes, orientation="horizontal",
        ticks=LogLocator(subs=(1, 2, 5), numticks=5) if log else MaxNLocator(4),
        format=lambda value, _: format_value(value),
    )  # fmt: skip
    bar.set_label(f"{name} (log scale)" if log else name)
    bar.minorticks_off()
    bar.outline.set_linewidth(0.4)
