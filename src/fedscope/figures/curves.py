"""Lines over a shared axis: accuracy by round, eigenvalues by rank, accuracy by a method's strength."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import Page

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.42, 0.1, 0.06, 0.36
AXES_HEIGHT = 1.9
LEGEND_ROW = 0.125
MOST_MARKED = 30  # points of a line that get a marker each
FEW_DECADES = 2.5  # up to which a logarithmic axis has ticks at 2 and 5 too
PER_PAIR = 2  # lines that share a colour, told apart by their style

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line: (m,) places and values, and where known the half-width of the band around it (m,)."""

    label: str
    x: Values
    y: Values
    band: Values | None = None
    level: bool = False  # a single value, drawn across the axes


def curves_figure(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    x_scale: Literal["linear", "log"] = "linear",
    y_scale: Literal["linear", "log"] = "linear",
    paired: bool = False,
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw lines in colours and styles that are told apart in print and by colour-blind readers.

    With ``paired`` neighbours share a colour: the first is dashed, the second solid. The legend stands above
    the axes, two names a row. Points of a line that are not finite, or not positive on a logarithmic axis,
    leave a gap. ``width`` is in inches.

    Raises:
        UserError: when there is no line, or none has a finite value.
    """
    if not any(np.isfinite(line.y).any() for line in lines):
        raise UserError("there is no finite value to draw")
    rows = -(-len(lines) // 2)
    legend = LEGEND_ROW * rows + 0.05
    with style.paper_style():
        page = Page(width=width, height=TOP + legend + AXES_HEIGHT + BOTTOM)
        box = page.box(left=LEFT, top=TOP + legend, width=width - LEFT - RIGHT, height=AXES_HEIGHT)
        axes = page.figure.add_axes(box)
        axes.set(xlabel=style.typeset(x_label), ylabel=style.typeset(y_label))
        axes.set_xscale(x_scale)
        axes.set_yscale(y_scale)
        for index, line in enumerate(lines):
            _draw(axes, line, _look(index, len(lines), paired=paired), y_scale)
        _ticks(axes, x_scale, y_scale)
        axes.grid(axis="y")
        axes.spines[["top", "right"]].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        order = [*range(0, len(lines), 2), *range(1, len(lines), 2)]  # matplotlib fills column by column
        axes.legend(
            [handles[place] for place in order],
            [labels[place] for place in order],
            loc="lower left",
            bbox_to_anchor=(0, 1.01),
            borderaxespad=0,
            labelspacing=0.25,
            handlelength=2.6,
            ncols=2,
            columnspacing=1.2,
        )
    return page.figure


def _look(index: int, count: int, *, paired: bool) -> dict[str, Any]:
    if paired:
        colors = style.method_colors(-(-count // PER_PAIR))
        return {"color": colors[index // PER_PAIR], "linestyle": ("--", "-")[index % PER_PAIR]}
    colors = style.method_colors(count)
    return {"color": colors[index], "linestyle": style.LINESTYLES[index % len(style.LINESTYLES)]}


def _draw(axes: Axes, line: Line, look: dict[str, Any], y_scale: str) -> None:
    values = np.where(line.y > 0, line.y, np.nan) if y_scale == "log" else line.y
    label = style.typeset(line.label)
    if line.level:
        axes.axhline(float(values[0]), label=label, **look)
        if line.band is not None:
            low, high = float(values[0] - line.band[0]), float(values[0] + line.band[0])
            axes.axhspan(low, high, color=look["color"], alpha=0.12, linewidth=0)
    elif len(line.x) <= MOST_MARKED:
        bars = None if line.band is None else line.band
        axes.errorbar(line.x, values, bars, label=label, marker="o", markersize=2.5, capsize=1.5, **look)
    else:
        axes.plot(line.x, values, label=label, **look)
        if line.band is not None:
            low_end, high_end = values - line.band, values + line.band
            axes.fill_between(line.x, low_end, high_end, color=look["color"], alpha=0.2, linewidth=0)


def _ticks(axes: Axes, x_scale: str, y_scale: str) -> None:
    for axis, scale in ((axes.xaxis, x_scale), (axes.yaxis, y_scale)):
        if scale != "log":
            axis.set_major_locator(MaxNLocator(6, integer=axis is axes.xaxis))
            continue
        low, high = axis.get_view_interval()
        few = np.log10(high / low) < FEW_DECADES
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=12))
        if few:
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_locator(NullLocator())
