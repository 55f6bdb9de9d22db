"""Lines in a pair of axes: places, values, and how they are drawn."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedscope.figures import style

MOST_MARKED = 12  # points of the longest line, up to which each gets a marker
LONGEST = 5  # characters of a tick at the side
FEW_DECADES = 2.5  # up to which a logarithmic axis has ticks at 2 and 5 too

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line: (m,) places and values, and where known the band around it.

    The band is its half-width (m,), or how far it reaches below and above (2, m).
    """

    label: str
    x: Values
    y: Values
    band: Values | None = None
    level: bool = False  # a single value, drawn across the axes
    family: str = ""  # lines of one family share a colour; of several the one that is named so is dashed
    shaded: bool = False  # the band, at marked points too, where there are bars without
    points: bool = False  # unconnected, with bars

    def where(self, some: NDArray[np.bool_]) -> "Line":
        """Return the line at some of its places (m,)."""
        band = None if self.band is None else self.band[..., some]
        return replace(self, x=self.x[some], y=self.y[some], band=band)

    @property
    def ends(self) -> Values:
        """Where the band begins and ends (2, m); NaN without one."""
        below, above = np.broadcast_to(np.nan if self.band is None else self.band, (2, len(self.y)))
        return np.array([self.y - below, self.y + above])

    @property
    def connected(self) -> "Line":
        """The line over its finite values, without a gap where one is missing between others."""
        return self.where(np.isfinite(self.y))


@dataclass(frozen=True)
class Panel:
    """Lines in one pair of axes."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    title: str = ""
    from_zero: bool = False  # the values' axis begins at 0


def draw_panel(
    axes: Axes,
    panel: Panel,
    looks: Mapping[str, dict[str, Any]] | None = None,
    x_scale: Literal["linear", "log"] = "linear",
) -> None:
    """Draw a panel's lines, but no legend; ``looks`` are matplotlib's settings of each by its label."""
    looks = looks or dict(zip((line.label for line in panel.lines), looks_of(panel.lines), strict=True))
    axes.set(xlabel=style.typeset(panel.x_label), ylabel=style.typeset(panel.y_label))
    axes.set_title(style.typeset(panel.title), fontsize=style.TEXT_SIZE, pad=3)
    axes.set_xscale(x_scale)
    marked = max(len(line.x) for line in panel.lines) <= MOST_MARKED
    for line in panel.lines:
        _draw(axes, line, looks[line.label], marked=marked)
    if panel.from_zero:
        axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    _ticks(axes, log=x_scale == "log")
    axes.grid(axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def looks_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return matplotlib's settings of each line: one colour per family, no two lines alike."""
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
            low, high = line.ends
            axes.axhspan(float(low[0]), float(high[0]), color=look["color"], alpha=0.12, linewidth=0)
    elif marked and not line.shaded:
        axes.errorbar(line.x, values, line.band, label=label, marker="o", markersize=2.5, capsize=1.5, **look)
    else:
        axes.plot(line.x, values, label=label, marker="o" if marked else "", markersize=2.5, **look)
        if line.band is not None:
            axes.fill_between(line.x, *line.ends, color=look["color"], alpha=0.2, linewidth=0)


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
