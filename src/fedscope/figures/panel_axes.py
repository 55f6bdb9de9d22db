"""Panels drawn in matplotlib's axes: their parts, scales, ticks and names."""

import math
from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, SymmetricalLogLocator

from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.label_placement import text_size, width_of
from fedscope.figures.panels import (
    Bars,
    Dots,
    Hatched,
    Line,
    Matrix,
    Names,
    Panel,
    Part,
    RuledLine,
    Stems,
    Ticks,
    Values,
    looks_of,
)

MOST_MARKED = 12  # points of the longest line, up to which each gets a marker
SMALLEST = 4.5  # numbers in cells, in points
BETWEEN_NAMES = 3.0  # points
MOST_NAMES = 20
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # of names that have no room one by one
BAR, BAR_BELOW = 0.07, 0.34  # inches: of a bar of colours, how thick it is and how far below its matrix
LONGEST = 5  # characters of a tick at the side
BARS_ALPHA, NARROW = 0.75, 0.4  # of bars, the width up to which their intervals have no caps
DOTS_MARGIN = 0.1  # beside dots, in the width of the axes
FEW_DECADES = 2.5  # up to which a logarithmic axis has ticks at 2 and 5 too

Looks = Mapping[str, dict[str, Any]]


def draw_panel(axes: Axes, panel: Panel, looks: Looks | None = None) -> None:
    lines = panel.lines
    looks = looks or dict(zip((line.label for line in lines), looks_of(lines), strict=True))
    axes.set(xlabel=_named(panel.x_label), ylabel=_named(panel.y_label))
    axes.set_title(_named(panel.title), fontsize=style.TEXT_SIZE, pad=11 if panel.head else 3)
    axes.set_xscale(panel.x.scale, **_linear(panel.x))
    axes.set_yscale(panel.y.scale, **_linear(panel.y))
    marked = max((len(line.x) for line in lines), default=0) <= MOST_MARKED
    for part in panel.parts:
        if isinstance(part, Line):
            _draw_line(axes, part, part.look or looks[part.label], marked=marked)
        else:
            draw_part(part, axes)
    if not lines and any(isinstance(part, Dots) for part in panel.parts):
        axes.margins(x=DOTS_MARGIN)
    if panel.from_zero:
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    _set_ticks(axes.xaxis, panel.x)
    _set_ticks(axes.yaxis, panel.y)
    if panel.grid:
        axes.grid(axis=panel.grid)
        axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def key_of(part: Part, looks: Looks) -> Artist:
    label = style.typeset(part.label)
    look: dict[str, Any] = {}
    if isinstance(part, Bars):
        return Patch(color=part.color, alpha=BARS_ALPHA, linewidth=0, label=label)
    if isinstance(part, Dots):
        look = {"linestyle": "", "marker": part.marker, "markersize": part.size, "color": part.color}
        look["markerfacecolor"] = part.color if part.filled else "white"
    if isinstance(part, Line):
        look = part.look or looks[part.label]
    return Line2D([], [], **look, label=label)


def _named(label: str) -> str:
    return label if "$" in label else style.typeset(label)


def _linear(ticks: Ticks) -> dict[str, float]:
    return {"linthresh": ticks.within, "linscale": 0.6} if ticks.scale == "symlog" else {}


def _draw_line(axes: Axes, line: Line, look: dict[str, Any], *, marked: bool) -> None:
    values, label = line.y, style.typeset(line.label)
    marker = line.marker if line.marker is not None else "o" if marked else ""
    look = {"marker": marker, "markersize": 2.5, **look}
    if line.points:
        axes.errorbar(line.x, values, line.band, label=label, capsize=1.5, **look)
    elif line.level:
        axes.axhline(float(values[0]), label=label, **{**look, "marker": ""})
        if line.band is not None:
            low, high = line.ends
            axes.axhspan(float(low[0]), float(high[0]), color=look["color"], alpha=0.12, linewidth=0)
    elif marker and not line.shaded:
        axes.errorbar(line.x, values, line.band, label=label, capsize=1.5, **look)
    else:
        axes.plot(line.x, values, label=label, **look)
        if line.band is not None:
            axes.fill_between(line.x, *line.ends, color=look["color"], alpha=0.2, linewidth=0)


@singledispatch
def draw_part(part: Part, axes: Axes) -> None:
    """Draw one part of a panel other than a line, whose look depends on the others."""
    raise TypeError(f"{type(part).__name__} is no part of a panel")


@draw_part.register
def _(part: Dots, axes: Axes) -> None:
    if not len(part.x):
        return  # an entry of the legend
    axes.plot(
        part.x, part.y, part.marker, markersize=part.size, color=part.color, label=style.typeset(part.label),
        markerfacecolor=part.color if part.filled else "white", zorder=3,
    )  # fmt: skip
    spans = ((axes.hlines, part.across, part.y, part.x), (axes.vlines, part.up, part.x, part.y))
    for draw, reach, at, values in spans:
        if reach is not None:
            below, above = np.broadcast_to(reach, (2, len(values)))
            known = np.isfinite(values - below + above)
            low, high = (values - below)[known], (values + above)[known]
            draw(at[known], low, high, color=part.color, linewidth=0.8, zorder=2)


@draw_part.register
def _(part: Bars, axes: Axes) -> None:
    color = style.method_colors(1)[0] if part.color is None else part.color
    label, caps = style.typeset(part.label), 2 * (part.width > NARROW)
    look: dict[str, Any] = {"color": color, "alpha": BARS_ALPHA, "linewidth": 0, "label": label}
    whisker: dict[str, Any] = {"fmt": "none", "ecolor": style.INK, "elinewidth": 0.7, "capsize": caps}
    if part.lying:
        axes.barh(part.at, part.lengths, height=part.width, **look)
        bars = axes.errorbar(part.lengths, part.at, xerr=part.reach, **whisker)
    else:
        axes.bar(part.at, part.lengths, width=part.width, **look)
        bars = axes.errorbar(part.at, part.lengths, yerr=part.reach, **whisker)
    bars.lines[2][0].set_capstyle("butt")


@draw_part.register
def _(part: Stems, axes: Axes) -> None:
    axes.vlines(part.x, part.low, part.high, color=part.color, linewidth=part.width, alpha=part.alpha)


@draw_part.register
def _(part: Hatched, axes: Axes) -> None:
    for low, high in zip(part.low, part.high, strict=True):
        axes.axvspan(low, high, zorder=0, **style.HATCHED)


@draw_part.register
def _(part: RuledLine, axes: Axes) -> None:
    (axes.axvline if part.upright else axes.axhline)(part.at, **part.look)


@draw_part.register
def _(part: Matrix, axes: Axes) -> None:
    count, norm = len(part.values), (LogNorm if part.log else Normalize)(part.low, part.high)
    edges, colors = np.arange(count + 1) - 0.5, style.loss_colormap()
    values = part.values.copy()
    np.fill_diagonal(values, np.nan)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))
    for row, column in zip(*np.nonzero(part.missing), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **style.HATCHED))
    axes.pcolormesh(
        edges, edges, np.ma.masked_invalid(values), cmap=colors, norm=norm, edgecolors="face", linewidth=0.1
    )
    for i in range(count):
        axes.plot([i - 0.5, i + 0.5], [i - 0.5, i + 0.5], color="0.7", linewidth=0.4, zorder=1)
    if np.isfinite(values).any():
        _write_values(axes, values, norm, room=0.88 * width_of(axes) / count)
        _draw_color_bar(axes, part, norm)


def _write_values(axes: Axes, grid: Values, norm: Normalize, *, room: float) -> None:
    texts = {
        (row, column): format_value(grid[row, column], digits=2)
        for row, column in zip(*np.nonzero(np.isfinite(grid)), strict=True)
    }
    widest = max(text_size(text, style.SMALL_SIZE)[0] for text in texts.values())
    size = min(1.0, room / widest) * style.SMALL_SIZE
    for (row, column), text in texts.items() if size >= SMALLEST else ():
        ink = style.ink_on(style.loss_colormap()(norm(grid[row, column])))
        axes.text(column, row, text, fontsize=size, color=ink, ha="center", va="center_baseline")


def _draw_color_bar(axes: Axes, part: Matrix, norm: Normalize) -> None:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    place, inch = axes.get_position(), 1 / figure.get_figheight()
    bar = figure.colorbar(
        ScalarMappable(norm, style.loss_colormap()),
        cax=figure.add_axes((place.x0, place.y0 - (BAR_BELOW + BAR) * inch, place.width, BAR * inch)),
        orientation="horizontal",
        ticks=LogLocator(subs=(1, 2, 5), numticks=5) if part.log else MaxNLocator(4),
        format=lambda value, _: format_value(value),
    )  # fmt: skip
    bar.set_label(f"{_named(part.title)} (log scale)" if part.log else _named(part.title))
    bar.minorticks_off()
    bar.outline.set_linewidth(0.4)


def _set_ticks(axis: XAxis | YAxis, ticks: Ticks) -> None:
    if ticks.limits:
        (axis.axes.set_xlim if isinstance(axis, XAxis) else axis.axes.set_ylim)(*ticks.limits)
    if ticks.names is not None:
        slant: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
        every = 1 if isinstance(axis, YAxis) or ticks.slanted else _every(axis, ticks.names)
        shown = ticks.names[::every]
        axis.set_ticks(
            [at for at, _ in shown],
            [style.typeset(name) for _, name in shown],
            **(slant if ticks.slanted else {}),
        )
        axis.set_tick_params(length=0)
    elif ticks.scale == "linear":
        _set_linear(axis, ticks)
    else:
        _set_decades(axis, ticks)


def _every(axis: XAxis | YAxis, names: Names) -> int:
    """Return of how many names below an axis each one has room."""
    widest = max((text_size(style.typeset(name), style.SMALL_SIZE)[0] for _, name in names), default=0.0)
    apart = width_of(axis.axes) / abs(float(np.ptp(axis.get_view_interval())))
    least = max((widest + BETWEEN_NAMES) / apart, len(names) / MOST_NAMES)
    return next(step for step in STEPS if step >= min(least, STEPS[-1]))


def _set_linear(axis: XAxis | YAxis, ticks: Ticks) -> None:
    axis.set_major_locator(MaxNLocator(ticks.count, integer=ticks.integer))
    if ticks.percent:
        axis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        return
    low, high = sorted(axis.get_view_interval())
    shown = [tick for tick in axis.get_majorticklocs() if low <= tick <= high]
    if isinstance(axis, YAxis) and any(len(f"{tick:.6g}") > LONGEST for tick in shown):
        # it would reach the axis' name
        axis.set_major_locator(MaxNLocator(min(4, ticks.count), steps=[1, 2, 5, 10]))
    if not all(tick == 0 or 1e-3 <= abs(tick) < 1e4 for tick in shown):
        axis.set_major_formatter(lambda value, _: format_value(value))


def _set_decades(axis: XAxis | YAxis, ticks: Ticks) -> None:
    axis.set_minor_locator(NullLocator())
    if ticks.scale == "symlog":
        locator = SymmetricalLogLocator(base=10, linthresh=ticks.within)
        locator.set_params(numticks=9)
        axis.set_major_locator(locator)
        return
    low, high = sorted(axis.get_view_interval())
    decades = math.log10(high / low)
    subs = (1, 1.5, 2, 3, 4, 5, 7) if decades <= 1 else (1, 2, 5) if decades < FEW_DECADES else (1,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=ticks.count * (2 if decades < FEW_DECADES else 1)))
    if ticks.percent:
        axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    elif decades < FEW_DECADES:
        axis.set_major_formatter(lambda value, _: format_value(value))
