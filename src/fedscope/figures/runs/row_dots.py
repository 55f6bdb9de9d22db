"""Numbers as dots with their intervals, a row for each name: of methods, layers, checkpoints, differences."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import panels_figure
from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.panels import Dots, Panel, Part, RuledLine, Ticks, Values, rows_of
from fedscope.records.differences import Difference

MOST_METHODS, MOST_LAYERS = 8, 120
COLUMNS = 3  # panels of a row
WIDTHS = (style.SINGLE_COLUMN, style.WIDE_COLUMN, style.DOUBLE_COLUMN)  # of as many columns
APART = 0.5  # of the space of a row, over which its dots are spread
ROW, LEAST_HIGH = 0.15, 0.5  # inches: of a row, and of a panel

Quantity = Mapping[str, tuple[float, float | None]]  # value and half of its 95 % interval by a row's name


def dots_figure(
    panels: Sequence[Mapping[str, Quantity]], names: Sequence[str], *, caption: str = ""
) -> Figure:
    """Draw each panel's quantities, by their titles, side by side; the first one names the panel."""
    if not panels or not names:
        raise UserError("there is no number to draw")
    several = max(map(len, panels)) > 1
    titles = [
        " / ".join(dict.fromkeys([*panel][index] for panel in panels if len(panel) > max(1, index)))
        for index in range(max(map(len, panels)) if several else 0)
    ]
    drawn = []
    for panel in panels:
        series = {
            titles[index] if several else "": _columns(quantity, names)
            for index, quantity in enumerate(panel.values())
        }
        drawn.append(rows_panel(names, series, title=next(iter(panel)), x=Ticks(3)))
    return rows_figure(drawn, len(names), notes=caption)


def _columns(quantity: Quantity, names: Sequence[str]) -> Values:
    rows = [quantity.get(name, (np.nan, None)) for name in names]
    return np.array([[value, np.nan if half is None else half] for value, half in rows])


def rows_figure(panels: Sequence[Panel], rows: int, *, notes: str = "") -> Figure:
    columns = min(COLUMNS, len(panels))
    high = max(LEAST_HIGH, ROW * rows)
    return panels_figure(
        panels, columns=columns, shared=False, width=WIDTHS[columns - 1], high=high, low=high, notes=notes,
        keys=None, legend="below",
    )  # fmt: skip


def rows_panel(
    names: Sequence[str],
    series: Mapping[str, Values],
    *,
    title: str = "",
    x_label: str = "",
    x: Ticks,
) -> Panel:
    """Return a panel of rows, the first on top, with the dots of each series beside those of the others.

    A series is (rows, 2), each one's value and half of its 95 % interval, or (rows, 3), how far this reaches
    below and above; NaN is unknown.
    """
    places, rows = rows_of(names)
    parts: list[Part] = []
    for index, (label, of) in enumerate(series.items()):
        shift = APART * ((index + 0.5) / len(series) - 0.5)
        known = np.isfinite(of[:, 0])
        look: dict[str, Any] = {"color": style.method_colors(index + 1)[-1], "marker": style.MARKERS[index]}
        reach = of[known, 1:].T
        parts.append(Dots(of[known, 0], places[known] - shift, across=reach, label=label, **look))
    low, high = _ends(series.values())
    if low < 0 < high and x.scale == "linear":
        parts.insert(0, RuledLine(0.0, upright=True, look={"color": "0.5", "linewidth": 0.5}))
    return Panel(parts, x_label, title=title, x=x, y=rows, grid="x")


def _ends(series: Collection[Values]) -> tuple[float, float]:
    every = [[of[:, 0] - of[:, 1], of[:, 0], of[:, 0] + of[:, -1]] for of in series]
    found = np.concatenate(every, axis=1)
    return float(np.nanmin(found, initial=np.inf)), float(np.nanmax(found, initial=-np.inf))


def layer_figure(
    layers: Sequence[str],
    values: Mapping[str, Values],
    *,
    title: str = "",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw a row for each layer, the first on top, with λ_max and its 95 % interval for each method.

    ``values`` are of (layers, 2): λ_max and half of its 95 % interval; NaN where unknown.
    """
    if not 1 <= len(values) <= MOST_METHODS or len(layers) > MOST_LAYERS:
        raise UserError(
            f"one figure shows 1 to {MOST_METHODS} methods and up to {MOST_LAYERS} layers, not {len(values)} "
            f"and {len(layers)}: make several"
        )
    if not any((of[:, 0] > 0).any() for of in values.values()):
        raise UserError("no layer has a positive λ_max, so there is nothing to draw; see --json")
    series = {name: _above_zero(of) for name, of in values.items()}
    panel = rows_panel(layers, series, x_label="λ_max of the layer's block", x=Ticks(scale="log"))
    high = 0.9 * ROW * (len(layers) + 0.4)
    return panels_figure([panel], high=high, title=title, caption=caption, width=width)


def _above_zero(of: Values) -> Values:
    """Return (layers, 3) of what has a place on a logarithmic axis, where no bar ends at zero or below."""
    center, above = np.nan_to_num(of.T)
    center = np.where(center > 0, center, np.nan)
    return np.array([center, np.minimum(above, 0.999 * center), above]).T


def draw_forest(axes: Axes, names: Sequence[str], differences: Sequence[Difference]) -> None:
    """Draw differences of one quantity from zero with their 95 % intervals, filled where they are decided."""
    places, rows = rows_of(names)
    parts: list[Part] = [RuledLine(0.0, upright=True)]
    for place, one in zip(places, differences, strict=True):
        low, high = one.interval
        reach = np.array([[one.value - low], [high - one.value]])
        decided = one.verdict in ("lower", "higher")
        look: dict[str, Any] = {"color": style.method_colors(1)[0], "filled": decided, "size": 4.0}
        parts.append(Dots(np.array([one.value]), np.array([place]), across=reach, **look))
    label = f"difference in {differences[0].quantity} (95 % interval)"
    draw_panel(axes, Panel(parts, label, x=Ticks(5), y=rows, grid=""))
