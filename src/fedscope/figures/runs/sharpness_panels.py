"""Sharpness of checkpoints, a small panel for each quantity: its values, or them against the gap."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import panels_figure
from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.panels import Dots, Line, Panel, Part, Ticks, Values
from fedscope.figures.runs.row_dots import COLUMNS, WIDTHS, rows_figure, rows_panel
from fedscope.figures.text.labels import label
from fedscope.figures.text.sharpness_tables import GAPS, SYMBOLS
from fedscope.records.sharpness_record import (
    Correlation,
    CorrelationRecord,
    GeneralizationGap,
    SharpnessEntry,
    SharpnessRecord,
)
from fedscope.statistics.standard_errors import interval

MOST = 24  # checkpoints of a figure
MOST_LOOKS = 10  # checkpoints that colour and marker tell apart
DECADES = 1.3  # of positive values from which an axis is logarithmic
HIGH = 1.25  # inches


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
        across, up = np.array([[below], [above]]), np.array([_gap_bar(gap, found)])
        height = np.array([gap.against(found.against)])
        parts.append(Dots(np.array([value]), height, across=across, up=up, color=color, **look))
    y_label = GAPS[found.against]
    x, y = _ticks(np.array(values)), Ticks(4)
    return Panel(parts, "", y_label, _symbol(name), head, x=x, y=y, grid="both")


def _gap_bar(gap: GeneralizationGap, found: CorrelationRecord) -> float:
    if found.against != "gap" or math.isnan(gap.stderr):
        return math.nan
    return interval(0.0, gap.stderr, gap.dof)[1]


def _tau(one: Correlation) -> str:
    if math.isnan(one.tau):
        return ""
    ends = [f"{end:.2f}" for end in one.interval or ()]
    return f"τ {one.tau:.2f} ({', '.join(ends)})".replace("-", "−")


def _ticks(values: Values) -> Ticks:
    finite = values[np.isfinite(values)]
    far = finite.size > 0 and finite.min() > 0 and math.log10(finite.max() / finite.min()) > DECADES
    return Ticks(3, scale="log" if far else "linear")
