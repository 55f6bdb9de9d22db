"""The samples of each class at each client, as bubbles or as stacked bars."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.figure_kinds import PartitionKind
from fedscope.figures.label_placement import POINTS, text_size
from fedscope.figures.page import LEGEND_ROW, RIGHT, in_rows, panels_figure
from fedscope.figures.panels import Panel, Ticks

Counts = NDArray[np.int64]

MOST_NAMED = 20  # clients or classes that get a tick each
MOST_COLORS = 10  # classes that are told apart by colour
# The largest bubble just fits its cell; where cells are small it may reach over some neighbours, or single
# samples could not be seen.
FITTING, REACHING = 0.95, 2.5  # diameter in the shorter side of a cell
SMALLEST_LARGEST, LARGEST = 6.0, 24.0  # points

# inches
LEFT, COLOR_BAR = 0.44, 0.34
LOWEST, HIGHEST, BARS_HEIGHT = 1.35, 2.7, 1.5  # of the axes


def partition_figure(
    counts: Counts,
    classes: Sequence[str],
    *,
    kind: PartitionKind = "bubbles",
    title: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw ``counts`` (N, C), the number of samples of every class that every client holds."""
    if counts.shape[1] != len(classes) or counts.max(initial=0) < 1:
        raise ValueError(f"{len(classes)} names for counts of shape {counts.shape}, {counts.sum()} samples")
    draw = _bubbles if kind == "bubbles" else _bars
    return draw(counts, classes, width, title)


def _bubbles(counts: Counts, classes: Sequence[str], width: float, title: str) -> Figure:
    clients, rows = counts.shape
    across = width - LEFT - RIGHT
    high = min(HIGHEST, max(LOWEST, across * rows / clients))
    cell = min(across / clients, high / rows) * POINTS
    fitting = min(FITTING * cell, LARGEST)
    largest = max(fitting, min(REACHING * cell, SMALLEST_LARGEST))  # diameter, points
    scale = largest**2 / int(counts.max())  # square points per sample
    # room for a largest bubble at the rim
    x = _clients(clients, _limits(clients, largest / POINTS / across))
    y = Ticks(10, integer=True, limits=_limits(rows, largest / POINTS / high))
    if rows <= MOST_NAMED:
        y = Ticks(names=[*enumerate(classes)], limits=y.limits)
    panel = Panel([], "client", "class", x=x, y=y, grid="both")
    figure = panels_figure(
        [panel], width=width, high=high, left=LEFT, above=max(LEGEND_ROW, largest / POINTS), title=title
    )
    with style.paper_style():
        (axes,) = figure.axes
        client, label = np.nonzero(counts)
        color = style.method_colors(1)[0]
        axes.scatter(client, label, s=counts[client, label] * scale, color=color, linewidths=0, zorder=2)
        axes.tick_params(length=0)
        _bubble_legend(axes, int(counts.max()), scale)
    return figure


def _clients(count: int, limits: tuple[float, float]) -> Ticks:
    return Ticks(names=[(number, str(number)) for number in range(count)], limits=limits)


def _limits(count: int, bubble: float) -> tuple[float, float]:
    margin = max(0.5, 0.5 * bubble * count / max(0.1, 1 - bubble))
    return -margin - 0.05, count - 1 + margin + 0.05


def _bubble_legend(axes: Axes, most: int, scale: float) -> None:
    sizes = legend_sizes(most)
    bubbles = [
        Line2D([], [], marker="o", linestyle="", color=style.method_colors(1)[0], markeredgewidth=0,
               markersize=math.sqrt(size * scale), label=f"{size:,}")
        for size in sizes
    ]  # fmt: skip
    length = max(1.0, math.sqrt(sizes[-1] * scale) / style.SMALL_SIZE)
    axes.legend(
        handles=[Line2D([], [], linestyle="", label="samples"), *bubbles], loc="lower right",
        bbox_to_anchor=(1, 1.0), borderaxespad=0, borderpad=0.3, ncols=len(bubbles) + 1, handlelength=length,
        handleheight=length, handletextpad=0.3, columnspacing=0.8,
    )  # fmt: skip


def legend_sizes(most: int) -> list[int]:
    """Return up to three counts of the series 1, 2, 5, 10, 20…, the largest at most ``most``."""
    series = [m * 10**e for e in range(len(str(most))) for m in (1, 2, 5)]
    upto = [size for size in series if size <= most]
    return upto[::-1][:7:3][::-1]


def _bars(counts: Counts, classes: Sequence[str], width: float, title: str) -> Figure:
    named, colors = len(classes) <= MOST_COLORS, style.class_colors(len(classes))
    widest = max(text_size(style.typeset(name), style.SMALL_SIZE)[0] for name in classes) / POINTS
    columns = max(1, min(len(classes), int(width / (widest + 0.22))))
    columns = math.ceil(len(classes) / math.ceil(len(classes) / columns))  # rows of one length
    x = _clients(len(counts), (-0.7, len(counts) - 0.3))
    y = Ticks(5, integer=True, limits=(0, 1.04 * counts.sum(axis=1).max()))
    figure = panels_figure(
        [Panel([], "client", "samples", x=x, y=y, grid="")], width=width, high=BARS_HEIGHT, left=LEFT,
        above=LEGEND_ROW * math.ceil(len(classes) / columns) * named, title=title,
    )  # fmt: skip
    with style.paper_style():
        (axes,) = figure.axes
        axes.add_collection(_stacks(counts, colors, separated=named))
        if named:
            patches = [
                Patch(color=color, label=style.typeset(name))
                for color, name in zip(colors, classes, strict=True)
            ]
            figure.legend(
                handles=in_rows(patches, columns), ncols=columns, loc="lower center", borderaxespad=0,
                bbox_to_anchor=(0.5, axes.get_position().y1 + 0.04 / figure.get_figheight()), borderpad=0,
                handlelength=0.8, handleheight=0.8, handletextpad=0.4, columnspacing=1.0, labelspacing=0.3,
            )  # fmt: skip
        else:
            _draw_color_bar(figure, axes, colors)
    return figure


def _stacks(counts: Counts, colors: Sequence[style.Color], *, separated: bool) -> PolyCollection:
    half = 0.43 if len(counts) <= MOST_NAMED else 0.5
    client, label = np.nonzero(counts)
    top = np.cumsum(counts, axis=1)[client, label]
    foot = top - counts[client, label]
    left, right = client - half, client + half
    corners = np.stack([left, foot, right, foot, right, top, left, top], axis=1).reshape(-1, 4, 2)
    fill = np.array(colors)[label]
    # without separation the edge closes the seams that viewers show between neighbours
    return PolyCollection(
        list(corners), facecolors=fill, edgecolors="white" if separated else fill, linewidths=0.15
    )


def _draw_color_bar(figure: Figure, axes: Axes, colors: Sequence[style.Color]) -> None:
    place, inch = axes.get_position(), 1 / figure.get_figwidth()
    room = COLOR_BAR * inch
    axes.set_position((place.x0, place.y0, place.width - room, place.height))
    norm = BoundaryNorm(np.arange(len(colors) + 1) - 0.5, len(colors))
    bar = figure.colorbar(
        ScalarMappable(norm, ListedColormap(list(colors))),
        cax=figure.add_axes((place.x1 - room + 0.06 * inch, place.y0, 0.09 * inch, place.height)),
    )
    bar.locator = MaxNLocator(5, integer=True)
    bar.ax.tick_params(length=1.5)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("class", labelpad=1)
