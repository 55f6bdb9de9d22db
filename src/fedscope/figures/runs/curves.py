"""Lines over a shared axis: accuracy by round, eigenvalues by rank, accuracy by a method's strength."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.inch_layout import Page, wrapped
from fedscope.figures.runs.grouped_curves import grouped_figure
from fedscope.figures.runs.line import Line

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.42, 0.1, 0.06, 0.36
AXES_HEIGHT, LOW_HEIGHT, GAP = 1.9, 1.0, 0.12
LEGEND_ROW, TITLE_LINE, SMALL_LINE = 0.125, 0.15, 0.115
MOST_COLUMNS = 4  # of the legend's names above panels side by side
MOST_LINES = 12  # of one length that one pair of axes shows
MOST_MARKED = 12  # points of the longest line, up to which each gets a marker
LONGEST = 5  # characters of a tick at the side
FEW_DECADES = 2.5  # up to which a logarithmic axis has ticks at 2 and 5 too


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    title: str = ""


def rounds_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw lines over the rounds that all share, and beside them whole those that are longer.

    More of one length than a pair of axes can show are drawn in groups.
    """
    ends = {line.label: line.x[-1] for line in lines if len(line.x)}  # a line may have no value at all
    shared = min(ends.values(), default=0.0)
    longer = [line for line in lines if ends.get(line.label, 0.0) > shared]
    if not longer and len(lines) > MOST_LINES:
        return grouped_figure(lines, y_label=y_label, title=title, caption=caption)
    if not longer:
        return panels_figure([Panel(lines, "round", y_label)], title=title, caption=caption)
    cut = [line.where(line.x <= shared) for line in lines]
    panels = [
        Panel(cut, "round", y_label, f"all, to round {shared:.0f}"),
        Panel(longer, "round", y_label, f"those trained to round {max(ends.values()):.0f}"),
    ]
    return panels_figure(panels, beside=True, title=title, caption=caption, width=style.WIDE_COLUMN)


def panels_figure(
    panels: Sequence[Panel],
    *,
    beside: bool = False,
    title: str = "",
    caption: str = "",
    x_scale: Literal["linear", "log"] = "linear",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw lines in colours and styles that are told apart in print and by colour-blind readers.

    A line has one look in all panels. These stand below each other on one x axis, or ``beside`` each other on
    one y axis. The legend stands above. Points that are not finite leave a gap. ``width`` is in inches.

    Raises:
        UserError: when a panel has no line, or none with a finite value.
    """
    if not all(any(np.isfinite(line.y).any() for line in panel.lines) for panel in panels):
        raise UserError("there is no finite value to draw")
    named = {line.label: line for panel in panels for line in panel.lines}
    looks = dict(zip(named, _looks([*named.values()]), strict=True))
    columns = MOST_COLUMNS if beside else 2
    titles = TITLE_LINE * any(panel.title for panel in panels)
    heads = wrapped(title, width=width, size=style.TITLE_SIZE)
    notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
    above = TOP + TITLE_LINE * len(heads) + SMALL_LINE * len(notes)
    above += LEGEND_ROW * -(-len(named) // columns) + 0.05 + titles
    with style.paper_style():
        heights = [AXES_HEIGHT] if beside else [AXES_HEIGHT, *[LOW_HEIGHT] * (len(panels) - 1)]
        page = Page(width=width, height=above + sum(heights) + GAP * (len(heights) - 1) + BOTTOM)
        page.write_head(heads, notes, top=TOP, title_step=TITLE_LINE, note_step=SMALL_LINE)
        side = width - LEFT - RIGHT
        if beside:
            side = (side - GAP * (len(panels) - 1)) / len(panels)
        axes: list[Axes] = []
        for place, panel in enumerate(panels):
            left = LEFT + beside * place * (side + GAP)
            top = above if beside else above + sum(heights[:place]) + GAP * place
            height = AXES_HEIGHT if beside else heights[place]
            box = page.box(left=left, top=top, width=side, height=height)
            first = axes[0] if axes else None
            axes.append(
                page.figure.add_axes(box, sharey=first) if beside else page.figure.add_axes(box, sharex=first)
            )
            draw_panel(axes[-1], panel, looks, x_scale)
            axes[-1].tick_params(labelleft=not beside or not place, labelbottom=beside or panel is panels[-1])
            axes[-1].xaxis.label.set_visible(beside or panel is panels[-1])
            axes[-1].yaxis.label.set_visible(not beside or not place)
            axes[-1].yaxis.set_label_coords(-0.66 * LEFT / side, 0.5)
        _draw_legend(axes[0], named, looks, columns, up=(0.03 + titles) / heights[0])
    return page.figure


def draw_panel(
    axes: Axes,
    panel: Panel,
    looks: Mapping[str, dict[str, Any]] | None = None,
    x_scale: Literal["linear", "log"] = "linear",
) -> None:
    """Draw a panel's lines, but no legend; ``looks`` are matplotlib's settings of each by its label."""
    looks = looks or dict(zip((line.label for line in panel.lines), _looks(panel.lines), strict=True))
    axes.set(xlabel=style.typeset(panel.x_label), ylabel=style.typeset(panel.y_label))
    axes.set_title(style.typeset(panel.title), fontsize=style.TEXT_SIZE, pad=3)
    axes.set_xscale(x_scale)
    marked = max(len(line.x) for line in panel.lines) <= MOST_MARKED
    for line in panel.lines:
        _draw(axes, line, looks[line.label], marked=marked)
    _ticks(axes, log=x_scale == "log")
    axes.grid(axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_legend(
    axes: Axes, lines: Mapping[str, Line], looks: Mapping[str, dict[str, Any]], columns: int, *, up: float
) -> None:
    names = [*lines]
    order = [name for first in range(columns) for name in names[first::columns]]  # filled column by column
    axes.legend(
        [Line2D([], [], **looks[name]) for name in order], [style.typeset(name) for name in order],
        loc="lower left", bbox_to_anchor=(0, 1 + up), borderaxespad=0, labelspacing=0.25, handlelength=2.6,
        ncols=columns, columnspacing=1.2,
    )  # fmt: skip


def _looks(lines: Sequence[Line]) -> list[dict[str, Any]]:
    members = Counter(line.family or line.label for line in lines)
    if len(members) == 1:
        return [style.curve_look(place) for place in range(len(lines))]
    families, looks = list(members), []
    for line in lines:
        name = line.family or line.label
        look = style.curve_look(families.index(name))
        if members[name] > 1:
            look["linestyle"] = "--" if line.label == line.family else "-"
        if line.points:
            look |= {"linestyle": "none", "marker": "o", "markersize": 3}
        looks.append(look)
    return looks


def _draw(axes: Axes, line: Line, look: dict[str, Any], *, marked: bool) -> None:
    values, label = line.y, style.typeset(line.label)
    if line.points:
        axes.errorbar(line.x, values, line.band, label=label, capsize=1.5, **look)
    elif line.level:
        axes.axhline(float(values[0]), label=label, **look)
        if line.band is not None:
            low, high = float(values[0] - line.band[0]), float(values[0] + line.band[0])
            axes.axhspan(low, high, color=look["color"], alpha=0.12, linewidth=0)
    elif marked and not line.shaded:
        axes.errorbar(line.x, values, line.band, label=label, marker="o", markersize=2.5, capsize=1.5, **look)
    else:
        axes.plot(line.x, values, label=label, marker="o" if marked else "", markersize=2.5, **look)
        if line.band is not None:
            low_end, high_end = values - line.band, values + line.band
            axes.fill_between(line.x, low_end, high_end, color=look["color"], alpha=0.2, linewidth=0)


def _ticks(axes: Axes, *, log: bool) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(6))
    low, high = sorted(axes.get_ylim())
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    if any(len(f"{tick:.6g}") > LONGEST for tick in shown):  # it would reach the axis' name
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if not log:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        return
    low, high = axes.get_xlim()
    few = np.log10(high / low) < FEW_DECADES
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=12))
    if few:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
