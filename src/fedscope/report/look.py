"""The look of the interactive charts: sizes, lines and colours of ``figures.style``, in plotly's words."""

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.colors import to_hex

from fedscope.figures import style
from fedscope.report.subjects import LINE_WIDTH, Subject

END = 11  # characters at either end of a name that a legend cuts
_SYMBOL = re.compile(r"(?<!\w)([λκHpwrFΔ])_(max|Tr|[NDkj])(?![^\W_])")
DIGITS = 6  # significant, of the numbers in the page


@dataclass(frozen=True)
class Chart:
    """A chart with what stands around it."""

    id: str
    alt: str  # what it shows, for who cannot see it
    caption: str
    data: list[dict[str, Any]]  # plotly's traces
    layout: dict[str, Any]


def layout(x: str, y: str, **changes: Any) -> dict[str, Any]:
    """Return the layout of a flat chart with named axes; ``changes`` are put into it, deeply.

    It has no colours: the page's script adds those of the scheme in use.
    """
    axis = {
        "showline": True,
        "ticks": "outside",
        "zeroline": False,
        "automargin": True,
    }
    return merged(
        {
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "margin": {"l": 60, "r": 16, "t": 30, "b": 55},
            "height": 380,
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
            "hoverlabel": {"namelength": -1},
            "xaxis": {**axis, "title": {"text": typeset(x)}},
            "yaxis": {**axis, "title": {"text": typeset(y), "standoff": 8}},
        },
        changes,
    )


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``changes`` put into it, dictionary by dictionary."""
    both = {
        key: merged(base[key], value)
        if isinstance(base.get(key), dict) and isinstance(value, dict)
        else value
        for key, value in changes.items()
    }
    return {**base, **both}


def legend_entry(subject: Subject) -> dict[str, Any]:
    """Return what every trace of a subject has: its name, and the group that its check box shows."""
    return {"name": text(_short(subject.name)), "legendgroup": f"s{subject.index}"}


def _short(name: str) -> str:
    """Return a name that a legend on a phone has room for; its ends tell like names apart."""
    return name if len(name) <= 2 * END + 1 else f"{name[:END]}…{name[-END:]}"


def line(subject: Subject) -> dict[str, Any]:
    """Return a subject's line."""
    return {"color": subject.color, "dash": subject.dash, "width": LINE_WIDTH}


def curve(subject: Subject, x: Sequence[Any], y: Any, *, marked: bool = True) -> dict[str, Any]:
    """Return a subject's line through points, which are ``marked`` by its symbol."""
    marker = {"marker": {"symbol": subject.symbol, "size": 6}} if marked else {}
    return {
        **legend_entry(subject),
        "type": "scatter",
        "mode": "lines+markers" if marked else "lines",
        "x": x,
        "y": numbers(y),
        "line": line(subject),
        "hovertemplate": "%{y:.4g}",
        **marker,
    }


def band(subject: Subject, x: Sequence[Any], low: Sequence[Any], high: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the filled band between two curves, without a hover of its own."""
    edge = {**legend_entry(subject), "x": x, "mode": "lines", "line": {"width": 0}, "showlegend": False}
    quiet = {**edge, "type": "scatter", "hoverinfo": "skip"}
    red, green, blue = (int(subject.color[i : i + 2], 16) for i in (1, 3, 5))
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.2)"}
    return [{**quiet, "y": low}, {**quiet, "y": high, **fill}]


def colorscale() -> list[list[Any]]:
    """Return the colour map of the losses."""
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
    """Return a number of three significant digits for a label: 0.001, 2.5, 7060, 1e+06."""
    large = 1000 <= abs(value) < 100_000
    return (f"{float(f'{value:.3g}'):.0f}" if large else f"{value:.3g}").replace("-", "−")
