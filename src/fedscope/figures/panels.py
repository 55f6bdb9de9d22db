"""A picture before it is drawn: what stands in each pair of axes, the same for a paper and for a page.

Matplotlib draws panels in :mod:`.panel_axes`, plotly in :mod:`fedscope.report.plotly_panels`.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedscope.figures import style

if TYPE_CHECKING:  # a surface is drawn without records
    from fedscope.records.estimates import Entry

Values = NDArray[np.floating[Any]]
Names = Sequence[tuple[float, str]]  # the ticks of an axis: places and what stands there
NORMAL = math.inf  # degrees of freedom of an error that is known well


@dataclass(frozen=True)
class Line:
    """One line: (m,) places and values; what is not finite leaves a gap.

    A band is its half-width (m,), or how far it reaches below and above (2, m).
    """

    label: str
    x: Values
    y: Values
    band: Values | None = None
    level: bool = False  # a single value, drawn across the axes
    family: str = ""  # lines of one family share a colour; of several the one that is named so is dashed
    shaded: bool = False  # the band, at marked points too, where there are bars without
    points: bool = False  # unconnected, with bars
    marker: str | None = None  # None: a dot at each of few points
    look: dict[str, Any] | None = None  # its colour and line; None: by its place among the lines

    def where(self, some: NDArray[np.bool_]) -> "Line":
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
class Dots:
    """Points with their 95 % intervals along either axis, as far as these are known.

    An interval is its half-width (m,), or how far it reaches below and above (2, m); NaN is none.
    """

    x: Values
    y: Values
    across: Values | None = None
    up: Values | None = None
    label: str = ""
    marker: str = "o"
    color: style.Color | str = style.INK
    filled: bool = True
    size: float = 3.0  # points


@dataclass(frozen=True)
class Bars:
    """Bars from zero at the places ``at`` (m,), with how far their 95 % intervals reach, (m,) or (2, m)."""

    at: Values
    lengths: Values
    reach: Values
    label: str = ""
    color: style.Color | None = None  # None: the first of the palette
    width: float = 0.72
    lying: bool = False  # from left to right, the places counted downwards


@dataclass(frozen=True)
class Stems:
    """Thin upright lines from ``low`` to ``high`` (m,)."""

    x: Values
    low: Values
    high: Values
    color: style.Color | str
    width: float = 0.7
    alpha: float = 1.0
    label: str = ""


@dataclass(frozen=True)
class Hatched:
    """Upright stripes from ``low`` to ``high`` (m,), where values are not finite."""

    low: Values
    high: Values
    label: str = ""


@dataclass(frozen=True)
class Matrix:
    """Numbers of all pairs (k, k) in colours between ``low`` and ``high``, with the bar of these below.

    The diagonal is crossed out; what else is NaN has no value and is hatched.
    """

    values: Values
    names: Sequence[str]
    low: float
    high: float
    log: bool = False
    title: str = ""  # of the bar
    label: str = ""

    @property
    def missing(self) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = ~np.isfinite(self.values) & ~np.eye(len(self.values), dtype=bool)
        return found


@dataclass(frozen=True)
class RuledLine:
    """A line across all of the axes at one value."""

    at: float
    upright: bool = False
    look: dict[str, Any] = field(default_factory=lambda: {"color": style.INK, "linewidth": 0.5})
    label: str = ""


Part = Line | Dots | Bars | Stems | Hatched | Matrix | RuledLine


@dataclass(frozen=True)
class Ticks:
    """How an axis counts: its scale, its ends, and what stands at its ticks."""

    count: int = 6  # intervals between ticks at most
    scale: Literal["linear", "log", "symlog"] = "linear"
    within: float = 1.0  # of a symmetric-logarithmic scale: where it is linear
    limits: tuple[float | None, float | None] | None = None
    integer: bool = False
    names: Names | None = None  # all ticks, of an axis without a scale of its own
    slanted: bool = False  # the names
    percent: bool = False  # shares are shown in per cent


@dataclass(frozen=True)
class Panel:
    """What stands in one pair of axes."""

    parts: Sequence[Part]
    x_label: str = ""
    y_label: str = ""
    title: str = ""
    head: str = ""  # a fainter line below the title
    from_zero: bool = False  # the values' axis begins at 0
    x: Ticks = Ticks(integer=True)
    y: Ticks = Ticks()
    grid: Literal["x", "y", "both", ""] = "y"

    @property
    def lines(self) -> list[Line]:
        return [part for part in self.parts if isinstance(part, Line)]


def looks_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return matplotlib's settings of each line: one colour per family, no two lines alike."""
    members = Counter(line.family or line.label for line in lines)
    if len(members) == 1:
        return [line.look or style.curve_look(place) for place, line in enumerate(lines)]
    families, looks = list(members), []
    for line in lines:
        name = line.family or line.label
        look = line.look or style.curve_look(families.index(name))
        if members[name] > 1 and not line.look:
            look["linestyle"] = "--" if line.label == line.family else "-"
        if line.points:
            look |= {"linestyle": "none", "marker": "o", "markersize": 3}
        looks.append(look)
    return looks


def rows_of(names: Sequence[str]) -> tuple[Values, Ticks]:
    """Return the places of rows, the first one on top, and the ticks that name them."""
    places = np.arange(float(len(names)))[::-1]
    named = [(float(place), name) for place, name in zip(places, names, strict=True)]
    return places, Ticks(names=named, limits=(-0.6, len(names) - 0.4))


def reach(stderr: float, dof: float = NORMAL) -> float:
    """Return half of the 95 % interval; NaN where the error is not known."""
    from fedscope.statistics.standard_errors import interval  # torch: not for every figure

    return interval(0.0, stderr, dof)[1]


def reach_of(entry: "Entry") -> float:
    return math.nan if math.isnan(entry.value) or not entry.error else reach(*entry.error)


def reach_over_seeds(values: Values) -> Values | None:
    """Return half of the 95 % interval of the mean over seeds, the first axis; None of a single seed."""
    count = len(values)
    if count < 2:
        return None
    half: Values = values.std(0, ddof=1) * reach(count**-0.5, count - 1)
    return half
