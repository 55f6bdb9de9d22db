"""Ratios to a reference as dots: a row for each condition, a panel for each quantity, methods by colour.

A method that adds to another has its colour, and is filled. The line at 1 is the reference. All panels have
one scale, that of the middle nine tenths of the ratios; what lies beyond is a triangle at its end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.label_placement import POINTS, text_size
from fedscope.figures.page import Page, wrapped
from fedscope.figures.runs.drawings import colors_by_family

MARKER = 3.2  # diameter in points
MOST_TICKS = 20
EDGE, ROOM = 1.03, 1.2  # factors: beyond the outermost dots, and at least to each side of 1
INSIDE = (0.05, 0.95)  # quantiles of all ratios that the axes reach at least
TICKS = (  # up to so many decades, ticks at these multiples of a power of ten
    (0.45, (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)),
    (2.5, (1.0, 2.0, 5.0)),
    (math.inf, (1.0,)),
)

# inches
PAD, RIGHT, TOP, BOTTOM = 0.1, 0.42, 0.06, 0.34
ROW, GAP, SPREAD = 0.19, 0.12, 0.36  # the last: of a row's height, which its dots take
LEGEND_ROW, SMALL_LINE, NAME_LINE = 0.14, 0.115, 0.15


@dataclass(frozen=True)
class RatioRow:
    """A condition: its name, the ratios of each quantity by method, and a note at the right."""

    name: str
    ratios: Mapping[str, Mapping[str, float]]
    note: str = ""


def ratios_figure(
    rows: Sequence[RatioRow], *, x_label: str, note: str = "", caption: str = "",
    width: float = style.DOUBLE_COLUMN,
) -> Figure:  # fmt: skip
    """Draw the rows from the top; ``note`` heads their notes, ``width`` is in inches.

    Raises:
        UserError: there is nothing to draw.
    """
    if not rows or not any(rows[0].ratios.values()):
        raise UserError("there is no ratio to draw")
    quantities = list(rows[0].ratios)
    methods = list(rows[0].ratios[quantities[0]])
    looks = {name: (color, name != base) for name, (base, color) in colors_by_family(methods).items()}
    limits = _limits(rows)
    names = [text_size(style.typeset(row.name), style.SMALL_SIZE)[0] for row in rows]
    indent = max(names) / POINTS + PAD
    notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
    columns = -(-len(methods) // 2)
    head = TOP + SMALL_LINE * len(notes) + 2 * LEGEND_ROW + NAME_LINE
    high = ROW * len(rows)
    with style.paper_style():
        page = Page(width=width, height=head + high + BOTTOM)
        page.write_notes(notes, top=TOP)
        side = (width - indent - RIGHT - GAP * (len(quantities) - 1)) / len(quantities)
        for index, quantity in enumerate(quantities):
            left = indent + index * (side + GAP)
            axes = page.figure.add_axes(page.box(left=left, top=head, width=side, height=high))
            _draw(axes, rows, quantity, looks, limits)
            axes.set_title(style.typeset(quantity), fontsize=style.TEXT_SIZE, pad=3)
            axes.set_xlabel(style.typeset(x_label))
            axes.tick_params(labelleft=not index)
        _write_notes(axes, rows, note)
        handles = [
            Line2D([], [], marker="o", linestyle="", markersize=MARKER, markeredgecolor=color,
                   markerfacecolor=color if filled else "white", label=style.typeset(method))
            for method, (color, filled) in looks.items()
        ]  # fmt: skip
        page.figure.legend(
            handles=handles, ncols=columns, loc="center", handletextpad=0.1, columnspacing=1.2,
            bbox_to_anchor=(0.5, 1 - (TOP + SMALL_LINE * len(notes) + LEGEND_ROW) / page.height),
        )  # fmt: skip
    return page.figure


def _draw(
    axes: Axes, rows: Sequence[RatioRow], quantity: str, looks: Mapping[str, tuple[style.Color, bool]],
    limits: tuple[float, float],
) -> None:  # fmt: skip
    axes.axvline(1, color=style.FAINT_INK, linewidth=0.6, zorder=1)
    step = SPREAD / max(1, len(looks) - 1)
    for place, row in enumerate(rows):
        axes.axhspan(place - 0.5, place + 0.5, color="0.965" if place % 2 else "white", zorder=0)
        for rank, (method, ratio) in enumerate(row.ratios[quantity].items()):
            color, filled = looks[method]
            at = min(max(ratio, limits[0]), limits[1])
            marker = "o" if at == ratio else "<" if ratio < at else ">"
            axes.plot(
                at, place - SPREAD / 2 + rank * step, marker, markersize=MARKER, clip_on=False, zorder=3,
                markeredgecolor=color, markerfacecolor=color if filled else "white", markeredgewidth=0.7,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [style.typeset(row.name) for row in rows])
    axes.tick_params(axis="y", length=0)
    low, high = limits
    axes.set_xlim(low / EDGE, high * EDGE)
    decades = math.log10(high / low)
    subs = next(subs for most, subs in TICKS if decades <= most)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=MOST_TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x")
    axes.spines[["top", "right", "left"]].set_visible(False)


def _limits(rows: Sequence[RatioRow]) -> tuple[float, float]:
    every = [ratio for row in rows for ratios in row.ratios.values() for ratio in ratios.values()]
    known = [ratio for ratio in every if math.isfinite(ratio)] or [1.0]
    low, high = np.quantile(known, INSIDE[0], method="lower"), np.quantile(known, INSIDE[1], method="higher")
    return min(float(low), 1 / ROOM), max(float(high), ROOM)


def _write_notes(axes: Axes, rows: Sequence[RatioRow], heading: str) -> None:
    look: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": style.SMALL_SIZE, "clip_on": False}
    for place, text in [(-1.0, heading), *((at, row.note) for at, row in enumerate(rows))]:
        axes.annotate(
            style.typeset(text), (1.0, place), xytext=(28, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", **look,
        )  # fmt: skip
