"""Panels drawn by plotly: charts of what :mod:`fedscope.figures.panels` describes."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.scale import SymmetricalLogTransform
from matplotlib.ticker import SymmetricalLogLocator

from fedscope.figures import style
from fedscope.figures.digits import format_estimate
from fedscope.figures.panels import Dots, Hatched, Line, Matrix, Panel, Part, RuledLine, Stems, Ticks, Values
from fedscope.report.subjects import LINE_WIDTH, SYMBOLS, Subject

END = 11  # characters at either end of a name that a legend cuts
DIGITS = 6  # significant, of the numbers in the page
MOST_MARKED = 40  # points of a line up to which each is drawn as such
MOST_NAMED = 8  # rounds each of which has a tick
MOST_WRITTEN = 12  # clients, up to which every cell of a matrix shows its number
UNRESOLVED_FILL = "#767676"  # stands out from white and from dark paper
_SYMBOL = re.compile(r"(?<!\w)([λκHpwrFΔ])_(max|Tr|[NDkj])(?![^\W_])")
_MARKERS = dict(zip(style.MARKERS, (*SYMBOLS, "triangle-left", "triangle-right"), strict=False))

Looks = Mapping[str, Subject]
Trace = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart with what stands around it."""

    id: str
    alt: str  # what it shows, for who cannot see it
    caption: str
    data: list[Trace]  # plotly's traces
    layout: dict[str, Any]


def chart(ident: str, panel: Panel, looks: Looks, *, alt: str, caption: str, **changes: Any) -> Chart:
    """Return the chart of a panel whose lines are those of subjects; ``changes`` are put into its layout."""
    data = [trace for part in panel.parts for trace in _traces(part, panel, looks)]
    shapes = [shape for part in panel.parts for shape in _shapes(part)]
    own = {"xaxis": _axis(panel.x, panel, upright=False), "yaxis": _axis(panel.y, panel, upright=True)}
    if panel.from_zero:
        own["yaxis"] |= {"rangemode": "tozero"}
    more = {"shapes": shapes} if shapes else {}
    return Chart(ident, alt, caption, data, _merged(_merged(_layout(panel), own | more), changes))


def rounds_chart(ident: str, panel: Panel, looks: Looks, caption: str, title: str = "") -> Chart:
    """Return the chart of lines by round, whose text says where each ends; it follows the page's slider."""
    lines = [line for line in panel.lines if not line.level]
    ends = [
        f"{looks[line.label].name} ends at {format_estimate(float(line.y[-1]))} in round {line.x[-1]:.0f}"
        for line in lines
    ]
    name = title or panel.y_label
    alt = f"{name[0].upper()}{name[1:]} by round: {'; '.join(ends)}."
    return chart(f"curve-{ident}", panel, looks, alt=alt, caption=caption, hovermode="x unified")


def _layout(panel: Panel) -> dict[str, Any]:
    """Return a flat chart's layout without colours: the page's script adds those of the scheme in use."""
    axis = {"showline": True, "ticks": "outside", "zeroline": False, "automargin": True}
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "margin": {"l": 60, "r": 16, "t": 30, "b": 55},
        "height": 380,
        "showlegend": not any(isinstance(part, Matrix) for part in panel.parts),
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
        "xaxis": {**axis, "title": {"text": typeset(panel.x_label)}},
        "yaxis": {**axis, "title": {"text": typeset(panel.y_label), "standoff": 8}},
    }


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], value)
        if isinstance(base.get(key), dict) and isinstance(value, dict)
        else value
        for key, value in changes.items()
    }
    return {**base, **both}


def _axis(ticks: Ticks, panel: Panel, *, upright: bool) -> dict[str, Any]:
    if ticks.names is not None:
        return {"type": "category", "showgrid": False}
    every = np.concatenate([line.y if upright else line.x for line in panel.lines])
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    if ticks.scale == "linear":
        ends = {"range": list(ticks.limits)} if ticks.limits else {}
        # by itself plotly halves the steps of a short run, and rounds the halves to rounds
        steps = {"dtick": 1} if high <= MOST_NAMED else {"tickformat": "d"}
        return ends | (steps if ticks.integer else {})
    if ticks.scale == "symlog":
        return _symmetric(ticks, low, high)
    low, high = (end or found for end, found in zip(ticks.limits or (None, None), (low, high), strict=True))
    ends = {"range": [math.log10(low), math.log10(high)]} if ticks.limits else {}
    return {"type": "log", **ends, **_decades(low, high)}


def _decades(low: float, high: float) -> dict[str, Any]:
    """Return ticks at 1, 2 and 5 of few decades, which plotly would shorten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if len(decades) > 4:
        return {"exponentformat": "power"}
    ticks = [digit * 10.0**power for power in decades for digit in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [*map(plain, ticks)]}


def _symmetric(ticks: Ticks, low: float, high: float) -> dict[str, Any]:
    places = SymmetricalLogLocator(base=10, linthresh=ticks.within).tick_values(low, high)
    inside = [float(place) for place in places if low <= place <= high]
    return {"tickvals": numbers(_placed(ticks, inside)), "ticktext": [*map(plain, inside)]}


def _placed(ticks: Ticks, values: "Values | Sequence[float]") -> list[float]:
    """Return where values stand: plotly has no symmetric-logarithmic axis."""
    if ticks.scale != "symlog":
        return [float(value) for value in values]
    found: list[float] = SymmetricalLogTransform(10, ticks.within, 0.6).transform(np.array(values)).tolist()
    return found


@singledispatch
def _traces(part: Part, panel: Panel, looks: Looks) -> list[Trace]:
    raise TypeError(f"there is no chart of {type(part).__name__}")


@_traces.register
def _(part: RuledLine | Hatched, panel: Panel, looks: Looks) -> list[Trace]:
    return []  # these are shapes


@_traces.register
def _(part: Line, panel: Panel, looks: Looks) -> list[Trace]:
    subject, x = looks[part.label.removeprefix("_")], numbers(_placed(panel.x, part.x))
    entry = {**_entry(subject), "type": "scatter", "x": x}
    band = [] if part.band is None else _band(subject, x, part, log=panel.y.scale == "log")
    marked = part.marker != "" and len(part.x) <= MOST_MARKED
    curve = {
        **entry,
        "mode": "lines+markers" if marked else "lines",
        "y": numbers(part.y.tolist()),
        "line": {"color": subject.color, "dash": subject.dash, "width": LINE_WIDTH},
        "hovertemplate": "%{y:.4g}",
        **({"marker": {"symbol": subject.symbol, "size": 6}} if marked else {}),
    }
    if panel.x.scale == "symlog":
        curve["text"] = [*map(plain, part.x)]
        curve["hovertemplate"] = f"{panel.x_label} %{{text}}<br>{panel.y_label} %{{y:.3g}}"
    return [*band, curve]


def _entry(subject: Subject) -> Trace:
    return {"name": text(_short(subject.name)), "legendgroup": f"s{subject.index}"}


def _short(name: str) -> str:
    """Return a name that a legend on a phone has room for; its ends tell like names apart."""
    return name if len(name) <= 2 * END + 1 else f"{name[:END]}…{name[-END:]}"


def _band(subject: Subject, x: Any, line: Line, *, log: bool) -> list[Trace]:
    """Return the filled band between two curves, without a hover of its own."""
    edge = {**_entry(subject), "x": x, "mode": "lines", "line": {"width": 0}, "showlegend": False}
    quiet = {**edge, "type": "scatter", "hoverinfo": "skip"}
    red, green, blue = (int(subject.color[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"}
    low, high = (numbers((np.maximum(end, 1e-300) if log else end).tolist()) for end in line.ends)
    return [{**quiet, "y": low}, {**quiet, "y": high, **fill}]


@_traces.register
def _(part: Dots, panel: Panel, looks: Looks) -> list[Trace]:
    subject = looks[part.label.removeprefix("_")]
    marker = {"symbol": _MARKERS[part.marker], "size": 11, "color": subject.color}
    return [
        {
            **_entry(subject),
            "type": "scatter",
            "mode": "markers",
            "showlegend": not part.label.startswith("_"),
            "x": numbers(_placed(panel.x, part.x)),
            "y": numbers(part.y.tolist()),
            "marker": {**marker, "line": {"width": 1, "color": "white"}},
            "cliponaxis": False,
            "text": [*map(plain, part.x)],
            "hovertemplate": f"{panel.x_label} %{{text}}",
        }
    ]


@_traces.register
def _(part: Stems, panel: Panel, looks: Looks) -> list[Trace]:
    subject = looks[part.label.removeprefix("_")]
    stems = [
        (x, end)
        for x, low, high in zip(part.x, part.low, part.high, strict=True)
        for end in (low, high, None)
    ]
    return [
        {
            **_entry(subject),
            "type": "scatter",
            "mode": "lines",
            "showlegend": False,
            "x": numbers([float(x) for x, _ in stems]),
            "y": numbers([end for _, end in stems]),
            "line": {"color": subject.color, "width": 1},
            "hoverinfo": "skip",
        }
    ]


@_traces.register
def _(part: Matrix, panel: Panel, looks: Looks) -> list[Trace]:
    squeeze = math.log10 if part.log else float
    low, high = squeeze(part.low), squeeze(part.high)
    values = part.values.tolist()
    marks = [low + (high - low) * i / 4 for i in range(5)]
    few = len(values) <= MOST_WRITTEN
    common = {"type": "heatmap", "x": list(part.names), "y": list(part.names), "hoverongaps": False}
    cells = {
        **common,
        "z": numbers([[v if math.isnan(v) else squeeze(v) for v in row] for row in values]),
        "zmin": low,
        "zmax": high if high > low else low + 1,
        "text": [["" if math.isnan(v) else plain(v) for v in row] for row in values],
        "texttemplate": "%{text}" if few else "",
        "hovertemplate": f"{part.title} of clients %{{y}} and %{{x}}: %{{text}}<extra></extra>",
        "colorscale": colorscale(),
        "colorbar": {
            "thickness": 12,
            "tickvals": marks,
            "ticktext": [plain(10**mark if part.log else mark) for mark in marks],
        },
    }
    if not part.missing.any():
        return [cells]
    grey = {
        **common,
        "z": [[1 if missing else None for missing in row] for row in part.missing.tolist()],
        "colorscale": [[0, UNRESOLVED_FILL], [1, UNRESOLVED_FILL]],
        "showscale": False,
        "texttemplate": "?" if few else "",
        "hovertemplate": f"{part.title} of clients %{{y}} and %{{x}}: unresolved<extra></extra>",
    }
    return [cells, grey]  # plotly writes on the grey ones in white


def _shapes(part: Part) -> list[dict[str, Any]]:
    """Return lines across the axes, and grey stripes where values are not finite."""
    if isinstance(part, Hatched):
        look = {"fillcolor": UNRESOLVED_FILL, "opacity": 0.25, "line": {"width": 0}, "layer": "below"}
        stripe = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, **look}
        return [{**stripe, "x0": x, "x1": end} for x, end in np.stack([part.low, part.high], 1).tolist()]
    if not isinstance(part, RuledLine):
        return []
    along, across = ("x", "y") if part.upright else ("y", "x")
    look = {"line": {"dash": "dot", "color": "#888888", "width": 1 if part.upright else 2}}
    ruled = {f"{along}0": part.at, f"{along}1": part.at, f"{across}0": 0, f"{across}1": 1}
    return [{"type": "line", f"{across}ref": "paper", **ruled, **look}]


def colorscale() -> list[list[Any]]:
    colormap = style.loss_colormap()
    return [[i / 32, to_hex(colormap(i / 32))] for i in range(33)]


def text(words: str) -> str:
    """Return ``words`` for plotly, which reads a little HTML: nothing in them is a tag or a link."""
    return html.escape(words, quote=False)


def typeset(words: str) -> str:
    """Return a text as HTML, for the page and for plotly: λ_max, H_N, p_k… have their subscripts below."""
    return _SYMBOL.sub(r"\1<sub>\2</sub>", text(words))


def numbers(values: Any) -> Any:
    """Return nested numbers with six significant digits; null stays null, what is not finite becomes it."""
    if isinstance(values, list | tuple):
        return [numbers(value) for value in values]
    if values is None or not math.isfinite(values):
        return None
    return float(f"{values:.{DIGITS}g}")


def plain(value: float) -> str:
    large = 1000 <= abs(value) < 100_000
    return (f"{float(f'{value:.3g}'):.0f}" if large else f"{value:.3g}").replace("-", "−")
