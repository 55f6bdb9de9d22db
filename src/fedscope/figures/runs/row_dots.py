"""Numbers as dots with their intervals, a row for each name; sharpness, a small panel for each quantity."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import panels_figure
from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.panels import Dots, Line, Panel, Part, RuledLine, Ticks, Values, reach, rows_of
from fedscope.figures.text.labels import label
from fedscope.figures.text.sharpness_tables import GAPS, SYMBOLS
from fedscope.records.differences import Difference
from fedscope.records.sharpness_record import (
    Correlation,
    CorrelationRecord,
    SharpnessEntry,
    SharpnessRecord,
)

MOST_METHODS, MOST_LAYERS = 8, 120
COLUMNS = 3  # panels of a row
WIDTHS = (style.SINGLE_COLUMN, style.WIDE_COLUMN, style.DOUBLE_COLUMN)  # of as many columns
APART = 0.5  # of the space of a row, over which its dots are spread
ROW, LEAST_HIGH = 0.15, 0.5  # inches: of a row, and of a panel

Quantity = Mapping[str, tuple[float, float | None]]  # value and half of its 95 % interval by a row's name
MOST = 24  # checkpoints of a figure
MOST_LOOKS = 10  # checkpoints that colour and marker tell apart
DECADES = 1.3  # of positive values from which an axis is logarithmic
HIGH = 1.25  # inches


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
    for index, (name, of) in enumerate(series.items()):
        shift = APART * ((index + 0.5) / len(series) - 0.5)
        known = np.isfinite(of[:, 0])
        look: dict[str, Any] = {"color": style.method_colors(index + 1)[-1], "marker": style.MARKERS[index]}
        across = of[known, 1:].T
        parts.append(Dots(of[known, 0], places[known] - shift, across=across, label=name, **look))
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
        across = np.array([[one.value - low], [high - one.value]])
        decided = one.verdict in ("lower", "higher")
        look: dict[str, Any] = {"color": style.method_colors(1)[0], "filled": decided, "size": 4.0}
        parts.append(Dots(np.array([one.value]), np.array([place]), across=across, **look))
    label = f"difference in {differences[0].quantity} (95 % interval)"
    draw_panel(axes, Panel(parts, label, x=Ticks(5), y=rows, grid=""))


def values_figure(records: Sequence[SharpnessRecord]) -> Figure:
    """Draw every quantity of every checkpoint with its 95 % interval; of one run's rounds, as a line."""
    names = _names(records)
    rounds = [record.checkpoint.round for record in records]
    if len({record.checkpoint.run for record in records}) == 1 and len(set(rounds)) == len(records) > 2:
        order = sorted(records, key=lambda record: record.checkpoint.round or 0)
        return _figure([_along(order, name) for name in names])
    if len(records) > MOST:
        raise UserError(f"one figure shows at most {MOST} checkpoints, not {len(records)}: make several")
    return rows_figure([_values(records, name) for name in names], len(records))


def _figure(panels: Sequence[Panel], **layout: Any) -> Figure:
    columns = min(COLUMNS, len(panels))
    return panels_figure(
        panels, columns=columns, width=WIDTHS[columns - 1], high=HIGH, low=HIGH, keys=None, legend="below",
        **{"shared": False, **layout},
    )  # fmt: skip


def against_figure(found: CorrelationRecord, labels: Sequence[str] | None = None) -> Figure:
    """Draw every quantity against the gap, a point for each checkpoint, with Kendall's τ above.

    Bars are 95 % intervals of the population's values.
    """
    named = labels or [label(record.checkpoint) for record in found.records]
    by_name = {one.name: one for one in found.correlations}
    panels = [_against(found, name, _tau(by_name[name]), named) for name in _names(found.records)]
    return _figure(
        panels,
        shared=True,
        notes="bars: 95 % intervals over the samples; above: Kendall's τ and its 95 % interval",
    )


def _names(records: Sequence[SharpnessRecord]) -> list[str]:
    names = list(dict.fromkeys(one.name for record in records for one in record.quantities))
    if not names:
        raise UserError("these records have no quantity to draw")
    return names


def _symbol(name: str) -> str:
    text = style.typeset(SYMBOLS.get(name, name))
    for plain, math_text in (
        ("ℓ∞", r"$\ell_\infty$"),
        ("ℓ$", r"$\ell$$"),
        ("κ_Tr", r"$\kappa_{\mathrm{Tr}}$"),
    ):
        text = text.replace(plain, math_text)
    return text.replace("κ_max", r"$\kappa_{\max}$")


def draw_values(axes: Axes, records: Sequence[SharpnessRecord], name: str) -> None:
    panel = _values(records, name)
    draw_panel(axes, Panel(panel.parts, x=panel.x, y=panel.y, grid="x"))


def _values(records: Sequence[SharpnessRecord], name: str) -> Panel:
    columns = np.array([_column(record.quantity(name)) for record in records])
    names = [label(record.checkpoint) for record in records]
    return rows_panel(names, {"": columns}, title=_symbol(name), x=_ticks(columns[:, 0]))


def _column(one: SharpnessEntry | None) -> tuple[float, float, float]:
    if one is None or not math.isfinite(one.value):
        return math.nan, math.nan, math.nan
    low, high = one.population_interval or one.interval or (math.nan, math.nan)
    return one.value, max(0.0, one.value - low), max(0.0, high - one.value)


def _along(records: Sequence[SharpnessRecord], name: str) -> Panel:
    known = [(record.checkpoint.round or 0, one) for record in records if (one := record.quantity(name))]
    values = np.array([one.value for _, one in known])
    ends = np.array([one.population_interval or (math.nan, math.nan) for _, one in known], float)
    band = np.array([values - ends[:, 0], ends[:, 1] - values])
    line = Line("_", np.array([float(r) for r, _ in known]), values, band, shaded=True)
    return Panel([line], "round", title=_symbol(name), x=Ticks(4, integer=True), y=Ticks(4), grid="both")


def _against(found: CorrelationRecord, name: str, head: str, labels: Sequence[str]) -> Panel:
    parts: list[Part] = []
    values = []
    for i, (record, text) in enumerate(zip(found.records, labels, strict=True)):
        one, gap = record.quantity(name), record.gap
        if one is None or gap is None or not math.isfinite(one.value + gap.against(found.against)):
            continue
        value, below, above = _column(one)
        values.append(value)
        few = len(found.records) <= MOST_LOOKS
        look: dict[str, Any] = {
            "marker": style.MARKERS[i if few else 0],
            "size": 3.6,
            "label": text if few else "",
        }
        color = style.method_colors(len(found.records) if few else 1)[i if few else 0]
        bar = reach(gap.stderr, gap.dof) if found.against == "gap" else math.nan
        across, up = np.array([[below], [above]]), np.array([bar])
        height = np.array([gap.against(found.against)])
        parts.append(Dots(np.array([value]), height, across=across, up=up, color=color, **look))
    y_label = GAPS[found.against]
    x, y = _ticks(np.array(values)), Ticks(4)
    return Panel(parts, "", y_label, _symbol(name), head, x=x, y=y, grid="both")


def _tau(one: Correlation) -> str:
    if math.isnan(one.tau):
        return ""
    ends = [f"{end:.2f}" for end in one.interval or ()]
    return f"τ {one.tau:.2f} ({', '.join(ends)})".replace("-", "−")


def _ticks(values: Values) -> Ticks:
    finite = values[np.isfinite(values)]
    far = finite.size > 0 and finite.min() > 0 and math.log10(finite.max() / finite.min()) > DECADES
    return Ticks(3, scale="log" if far else "linear")
