"""Sharpness of checkpoints, a small panel for each quantity: its values, or them against the gap."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS
from fedscope.figures.label_placement import text_size
from fedscope.figures.runs.small_panels import COLUMNS, small_panels
from fedscope.figures.text.labels import label
from fedscope.figures.text.sharpness import GAPS, SYMBOLS
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
WIDEST = 2.0  # inches: of the names of checkpoints


def values_figure(records: Sequence[SharpnessRecord]) -> Figure:
    """Draw every quantity of every checkpoint with its 95 % interval; of one run's rounds, as a line."""
    names = _names(records)
    symbols = [*map(_symbol, names)]
    rounds = [record.checkpoint.round for record in records]
    if len({record.checkpoint.run for record in records}) == 1 and len(set(rounds)) == len(records) > 2:
        order = sorted(records, key=lambda record: record.checkpoint.round or 0)
        return small_panels(symbols, lambda axes, i: _along(axes, order, names[i]), x_label="round")
    if len(records) > MOST:
        raise UserError(f"one figure shows at most {MOST} checkpoints, not {len(records)}: make several")
    with style.paper_style():
        widths = [text_size(label(record.checkpoint), style.SMALL_SIZE)[0] for record in records]
    room = min(WIDEST, max(widths) / POINTS + 0.12)
    high = max(0.5, 0.16 * len(records) + 0.1)

    def draw(axes: Axes, i: int) -> None:
        draw_values(axes, records, names[i], named=i % COLUMNS == 0)

    return small_panels(symbols, draw, left=room, high=high)


def against_figure(found: CorrelationRecord, labels: Sequence[str] | None = None) -> Figure:
    """Draw every quantity against the gap, a point for each checkpoint, with Kendall's τ above.

    Bars are 95 % intervals of the population's values.

    Args:
        found: the correlations, and the records that they are of.
        labels: of the records; without them their checkpoints'.
    """
    names, by_name = _names(found.records), {one.name: one for one in found.correlations}

    return small_panels(
        [*map(_symbol, names)],
        lambda axes, i: _scatter(axes, found, names[i]),
        heads=[_tau(by_name[name]) for name in names],
        y_label=GAPS[found.against],
        keys=_keys(labels or [label(record.checkpoint) for record in found.records]),
        shared=True,
        caption="bars: 95 % intervals over the samples; above: Kendall's τ and its 95 % interval",
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


def draw_values(axes: Axes, records: Sequence[SharpnessRecord], name: str, *, named: bool = True) -> None:
    """Draw a quantity's values with 95 % intervals, one below the other; with ``named`` their checkpoints."""
    places = np.arange(len(records))[::-1]
    color = style.method_colors(1)[0]
    for place, record in zip(places, records, strict=True):
        one = record.quantity(name)
        if one and math.isfinite(one.value):
            axes.errorbar(
                one.value, place, xerr=_bars(one), fmt="o", markersize=3, color=color, elinewidth=0.8
            )
    axes.set_ylim(-0.6, len(records) - 0.4)
    axes.set_yticks(places, [label(record.checkpoint) if named else "" for record in records])
    axes.tick_params(axis="y", length=0)
    _dress(axes, [one.value for record in records if (one := record.quantity(name))])


def _along(axes: Axes, records: Sequence[SharpnessRecord], name: str) -> None:
    known = [(record.checkpoint.round or 0, one) for record in records if (one := record.quantity(name))]
    rounds, values = [r for r, _ in known], np.array([one.value for _, one in known])
    look = style.curve_look(0)
    axes.plot(rounds, values, marker="o" if len(known) <= MOST_LOOKS else "", markersize=2.5, **look)
    ends = np.array([one.population_interval or (math.nan, math.nan) for _, one in known], float)
    axes.fill_between(rounds, ends[:, 0], ends[:, 1], color=look["color"], alpha=0.15, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    style.draw_grid(axes)


def _scatter(axes: Axes, found: CorrelationRecord, name: str) -> None:
    values = []
    for i, record in enumerate(found.records):
        one, gap = record.quantity(name), record.gap
        if one is None or gap is None or not math.isfinite(one.value + gap.against(found.against)):
            continue
        values.append(one.value)
        high = gap.against(found.against)
        axes.errorbar(
            one.value, high, xerr=_bars(one), yerr=_gap_bar(gap, found), elinewidth=0.6, markersize=3.6,
            markeredgewidth=0, **_look(i, len(found.records)),
        )  # fmt: skip
    _dress(axes, values)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))


def _look(index: int, count: int) -> dict[str, Any]:
    if count > MOST_LOOKS:
        return {"fmt": "o", "color": style.method_colors(1)[0]}
    return {"fmt": style.MARKERS[index], "color": style.method_colors(count)[index]}


def _bars(one: SharpnessEntry) -> list[list[float]] | None:
    ends = one.population_interval or one.interval
    if ends is None or not all(map(math.isfinite, ends)):
        return None
    return [[max(0.0, one.value - ends[0])], [max(0.0, ends[1] - one.value)]]


def _gap_bar(gap: GeneralizationGap, found: CorrelationRecord) -> float | None:
    if found.against != "gap" or math.isnan(gap.stderr):
        return None
    return interval(0.0, gap.stderr, gap.dof)[1]


def _tau(one: Correlation) -> str:
    if math.isnan(one.tau):
        return ""
    ends = [f"{end:.2f}" for end in one.interval or ()]
    return f"τ {one.tau:.2f} ({', '.join(ends)})".replace("-", "−")


def _dress(axes: Axes, values: Sequence[float]) -> None:
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and math.log10(max(finite) / min(finite)) > DECADES:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axes.margins(x=0.12)
    style.draw_grid(axes)


def _keys(names: Sequence[str]) -> list[Line2D]:
    count = len(names)
    if count > MOST_LOOKS:
        return []
    return [
        Line2D(
            [],
            [],
            linestyle="",
            marker=look["fmt"],
            color=look["color"],
            markersize=3.6,
            label=style.typeset(n),
        )
        for n, look in zip(names, (_look(i, count) for i in range(count)), strict=True)
    ]
