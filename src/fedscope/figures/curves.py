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
MOST_MARKED = 12  # points of the longest line, up to which each gets a marker
FEW_DECADES = 2.5  # up to which a logarithmic axis has ticks at 2 and 5 too

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line: (m,) places and values, and where known the half-width of the band around it (m,)."""

    label: str
    x: Values
    y: Values
    band: Values | None = None
    level: bool = False  # a single value, drawn across the axes
    family: str = ""  # lines of one family share a colour; the one that is named so is dashed


def curves_figure(
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    x_scale: Literal["linear", "log"] = "linear",
    y_scale: Literal["linear", "log"] = "linear",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw lines in colours and styles that are told apart in print and by colour-blind readers.

    The legend stands above the axes, two names a row. Points that are not finite, or not positive on
    a logarithmic axis, leave a gap. ``width`` is in inches.

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
        marked = max(len(line.x) for line in lines) <= MOST_MARKED
        for line, look in zip(lines, _looks(lines), strict=True):
            _draw(axes, line, look, y_scale, marked=marked)
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


def _looks(lines: Sequence[Line]) -> list[dict[str, Any]]:
    families = list(dict.fromkeys(line.family or line.label for line in lines))
    colors, looks = style.method_colors(len(families)), []
    for line in lines:
        place = families.index(line.family or line.label)
        dashes = style.LINESTYLES[place % len(style.LINESTYLES)]
        if line.family:
            dashes = "--" if line.label == line.family else "-"
        looks.append({"color": colors[place], "linestyle": dashes})
    return looks


def _draw(axes: Axes, line: Line, look: dict[str, Any], y_scale: str, *, marked: bool) -> None:
    values = np.where(line.y > 0, line.y, np.nan) if y_scale == "log" else line.y
    label = style.typeset(line.label)
    if line.level:
        axes.axhline(float(values[0]), label=label, **look)
        if line.band is not None:
            low, high = float(values[0] - line.band[0]), float(values[0] + line.band[0])
            axes.axhspan(low, high, color=look["color"], alpha=0.12, linewidth=0)
    elif marked:
        axes.errorbar(line.x, values, line.band, label=label, marker="o", markersize=2.5, capsize=1.5, **look)
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
