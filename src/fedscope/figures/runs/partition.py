"""The samples of each class at each client, as bubbles or as stacked bars."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.inch_layout import POINTS, Page
from fedscope.figures.kinds import PartitionKind

Counts = NDArray[np.int64]

MOST_NAMED = 20  # clients or classes that get a tick each
TICK_STEPS = (1, 2, 5, 10)
# The largest bubble just fits its cell; where cells are small it may reach over some neighbours, or single
# samples could not be seen.
FITTING, REACHING = 0.95, 2.5  # diameter in the shorter side of a cell
SMALLEST_LARGEST, LARGEST = 6.0, 24.0  # points

# inches
RIGHT, TOP, BOTTOM = 0.08, 0.06, 0.3
TITLE, LEGEND_ROW = 0.17, 0.125
LOWEST, HIGHEST = 1.35, 2.7  # of the axes
BARS_HEIGHT = 1.5
COLORBAR = 0.42  # with its labels


def partition_figure(
    counts: Counts,
    classes: Sequence[str],
    *,
    kind: PartitionKind = "bubbles",
    title: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw ``counts`` (N, C), the number of samples of every class that every client holds.

    ``bubbles``: one per client and class, its area proportional to the count, none for zero. ``bars``: one
    per client, as high as its samples, in the classes' colours; up to ten classes have a colour each, more
    share a sequential map. ``classes`` are their names, ``width`` is in inches.
    """
    if counts.shape[1] != len(classes) or counts.max(initial=0) < 1:
        raise ValueError(f"{len(classes)} names for counts of shape {counts.shape}, {counts.sum()} samples")
    with style.paper_style():
        head = TOP + (TITLE if title else 0)
        if kind == "bubbles":
            page = _bubbles(counts, classes, width, head)
        else:
            page = _bars(counts, classes, width, head)
        if title:
            page.write(style.typeset(title), center=width / 2, top=TOP, fontsize=style.TITLE_SIZE)
    return page.figure


def _bubbles(counts: Counts, classes: Sequence[str], width: float, head: float) -> Page:
    clients, rows = counts.shape
    left = _name_width(classes) + 0.26 if rows <= MOST_NAMED else 0.36
    across = width - left - RIGHT
    high = min(HIGHEST, max(LOWEST, across * rows / clients))
    cell = min(across / clients, high / rows) * POINTS
    fitting = min(FITTING * cell, LARGEST)
    largest = max(fitting, min(REACHING * cell, SMALLEST_LARGEST))  # diameter, points
    scale = largest**2 / int(counts.max())  # square points per sample
    head += max(LEGEND_ROW, largest / POINTS) + 0.05
    page = Page(width=width, height=head + high + BOTTOM)
    axes = page.figure.add_axes(page.box(left=left, top=head, width=across, height=high))
    client, label = np.nonzero(counts)
    color = style.method_colors(1)[0]
    axes.scatter(client, label, s=counts[client, label] * scale, color=color, linewidths=0, zorder=2)
    axes.set(xlabel="client", ylabel="class")
    # room for a largest bubble at the rim
    axes.set_xlim(*_limits(clients, largest / POINTS / across))
    axes.set_ylim(*_limits(rows, largest / POINTS / high))
    _number(axes.xaxis, clients)
    _number(axes.yaxis, rows)
    if rows <= MOST_NAMED:
        axes.set_yticks(range(rows), [style.typeset(name) for name in classes])
    axes.grid(visible=True)
    axes.tick_params(length=0)
    _bubble_legend(axes, int(counts.max()), scale)
    return page


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


def _bars(counts: Counts, classes: Sequence[str], width: float, head: float) -> Page:
    clients = len(counts)
    named = len(classes) <= len(style.method_colors(10))
    columns = min(len(classes), int(width / (_name_width(classes) + 0.22))) if named else 1
    columns = math.ceil(len(classes) / math.ceil(len(classes) / columns))  # rows of one length
    legend = LEGEND_ROW * math.ceil(len(classes) / columns) + 0.06 if named else 0.04
    left = 0.44
    across = width - left - (RIGHT if named else COLORBAR)
    page = Page(width=width, height=head + legend + BARS_HEIGHT + BOTTOM)
    axes = page.figure.add_axes(page.box(left=left, top=head + legend, width=across, height=BARS_HEIGHT))
    colors = style.class_colors(len(classes))
    axes.add_collection(_stacks(counts, colors, separated=named))
    axes.set(
        xlim=(-0.7, clients - 0.3),
        ylim=(0, 1.04 * counts.sum(axis=1).max()),
        xlabel="client",
        ylabel="samples",
    )
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=TICK_STEPS))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    _number(axes.xaxis, clients)
    if named:
        _color_legend(page, [style.typeset(name) for name in classes], colors, columns, head)
    else:
        box = page.box(left=width - COLORBAR + 0.06, top=head + legend, width=0.09, height=BARS_HEIGHT)
        _color_bar(page.figure, page.figure.add_axes(box), colors)
    return page


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


def _number(axis: Axis, count: int) -> None:
    if count <= MOST_NAMED:
        axis.set_ticks(range(count))
    else:
        ticks = MaxNLocator(10, steps=TICK_STEPS).tick_values(0, count - 1)
        axis.set_ticks([int(tick) for tick in ticks if tick < count])


def _name_width(names: Sequence[str]) -> float:
    return 0.5 * style.SMALL_SIZE / POINTS * max(map(len, names))


def _color_legend(
    page: Page, names: Sequence[str], colors: Sequence[style.Color], columns: int, top: float
) -> None:
    """Name the colours row by row; matplotlib fills its legends column by column."""
    order = [index for column in range(columns) for index in range(column, len(names), columns)]
    page.figure.legend(
        handles=[Patch(color=colors[index], label=names[index]) for index in order], ncols=columns,
        loc="upper center", bbox_to_anchor=(0.5, 1 - top / page.height), borderaxespad=0, borderpad=0,
        handlelength=0.8, handleheight=0.8, handletextpad=0.4, columnspacing=1.0, labelspacing=0.3,
    )  # fmt: skip


def _color_bar(figure: Figure, axes: Axes, colors: Sequence[style.Color]) -> None:
    norm = BoundaryNorm(np.arange(len(colors) + 1) - 0.5, len(colors))
    bar = figure.colorbar(ScalarMappable(norm, ListedColormap(list(colors))), cax=axes)
    bar.locator = MaxNLocator(5, integer=True, steps=TICK_STEPS)
    bar.ax.tick_params(length=1.5)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("class", labelpad=1)
