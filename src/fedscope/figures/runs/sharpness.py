"""Sharpness of checkpoints, a small panel for each quantity: its values, or them against the gap."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS, Page
from fedscope.figures.label_placement import text_size
from fedscope.figures.text.labels import label
from fedscope.figures.text.sharpness import GAPS, SYMBOLS
from fedscope.records.sharpness import Correlation, CorrelationRecord, Gap, Sharpness, SharpnessRecord

COLUMNS, MOST = 3, 24  # panels of a row; checkpoints of a figure
MOST_LOOKS = 10  # checkpoints that colour and marker tell apart
DECADES = 1.3  # of positive values from which an axis is logarithmic

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.46, 0.08, 0.06, 0.24
HIGH, LINE, HEAD, BETWEEN, ASIDE = 1.25, 0.13, 0.3, 0.2, 0.14
WIDEST = 2.0  # of the names of checkpoints

Drawn = Callable[[Axes, str, int], None]


def values_figure(records: Sequence[SharpnessRecord]) -> Figure:
    """Draw every quantity of every checkpoint with its 95 % interval; along the rounds of one run, as a line.

    Raises:
        UserError: no quantity, or more than 24 checkpoints that are no rounds of one run.
    """
    names = _names(records)
    rounds = [record.checkpoint.round for record in records]
    if len({record.checkpoint.run for record in records}) == 1 and len(set(rounds)) == len(records) > 2:
        order = sorted(records, key=lambda record: record.checkpoint.round or 0)
        return _panels(names, lambda axes, name, _: _along(axes, order, name), x_label="round")
    if len(records) > MOST:
        raise UserError(f"one figure shows at most {MOST} checkpoints, not {len(records)}: make several")
    with style.paper_style():
        widths = [text_size(label(record.checkpoint), style.SMALL_SIZE)[0] for record in records]
    room = min(WIDEST, max(widths) / POINTS + 0.12)
    high = max(0.5, 0.16 * len(records) + 0.1)
    return _panels(
        names, lambda axes, name, i: draw_values(axes, records, name, named=not i), left=room, high=high
    )


def against_figure(found: CorrelationRecord) -> Figure:
    """Draw every quantity against the gap, a point for each checkpoint, with Kendall's τ above.

    Bars are 95 % intervals of the population's values.

    Raises:
        UserError: no quantity.
    """
    names, by_name = _names(found.records), {one.name: one for one in found.correlations}

    def draw(axes: Axes, name: str, _: int) -> None:
        _scatter(axes, found, name)

    heads = [_tau(by_name[name]) for name in names]
    return _panels(
        names, draw, heads=heads, y_label=GAPS[found.against], keys=_keys(found.records), shared=True
    )


def _names(records: Sequence[SharpnessRecord]) -> list[str]:
    names = list(dict.fromkeys(one.name for record in records for one in record.quantities))
    if not names:
        raise UserError("these records have no quantity to draw")
    return names


def _panels(
    names: Sequence[str],
    draw: Drawn,
    *,
    heads: Sequence[str] = (),
    x_label: str = "",
    y_label: str = "",
    left: float = LEFT,
    high: float = HIGH,
    keys: Sequence[Line2D] = (),
    shared: bool = False,
) -> Figure:
    """Draw a panel for each name in rows of three, its symbol and a line of text above it."""
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    width = (
        style.DOUBLE_COLUMN
        if columns == COLUMNS
        else style.WIDE_COLUMN
        if columns > 1
        else style.SINGLE_COLUMN
    )
    head = HEAD if heads else HEAD - LINE
    aside = ASIDE if shared or left != LEFT else LEFT
    side = (width - left - RIGHT - aside * (columns - 1)) / columns
    step = head + high + BETWEEN + (LINE if x_label else 0.0)
    with style.paper_style():
        legend = _legend_rows(keys, width)
        height = TOP + rows * step + BOTTOM - BETWEEN + LINE * legend
        page = Page(width=width, height=height)
        for i, name in enumerate(names):
            row, column = divmod(i, columns)
            x, top = left + column * (side + aside), TOP + row * step
            axes = page.figure.add_axes(page.box(left=x, top=top + head, width=side, height=high))
            draw(axes, name, column)
            symbol = _symbol(name)
            page.write(symbol, center=x + side / 2, top=top + 0.02, fontsize=style.TEXT_SIZE)
            if heads:
                page.write(
                    heads[i], center=x + side / 2, top=top + 0.02 + LINE, fontsize=style.SMALL_SIZE,
                    color=style.FAINT_INK,
                )  # fmt: skip
            if column and shared:
                axes.tick_params(labelleft=False)
            elif y_label:
                axes.set_ylabel(style.typeset(y_label))
            if x_label:
                axes.set_xlabel(x_label)
        if keys:
            _draw_legend(page, keys, legend)
    return page.figure


def _symbol(name: str) -> str:
    """Return a quantity's symbol for matplotlib, whose serif font lacks some of its glyphs."""
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
    _frame(axes)


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
    """Return colour and marker of a checkpoint; of many they are alike."""
    if count > MOST_LOOKS:
        return {"fmt": "o", "color": style.method_colors(1)[0]}
    return {"fmt": style.MARKERS[index], "color": style.method_colors(count)[index]}


def _bars(one: Sharpness) -> list[list[float]] | None:
    """Return how far the 95 % interval reaches below and above."""
    ends = one.population_interval or one.interval
    if ends is None or not all(map(math.isfinite, ends)):
        return None
    return [[max(0.0, one.value - ends[0])], [max(0.0, ends[1] - one.value)]]


def _gap_bar(gap: Gap, found: CorrelationRecord) -> float | None:
    if found.against != "gap" or math.isnan(gap.stderr):
        return None
    return 1.96 * gap.stderr


def _tau(one: Correlation) -> str:
    if math.isnan(one.tau):
        return ""
    ends = [f"{end:.2f}" for end in one.interval or ()]
    return f"τ {one.tau:.2f} ({', '.join(ends)})".replace("-", "−")


def _dress(axes: Axes, values: Sequence[float]) -> None:
    """Choose the scale and the ticks of the axis of values."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and math.log10(max(finite) / min(finite)) > DECADES:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=4))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axes.margins(x=0.12)
    _frame(axes)


def _frame(axes: Axes) -> None:
    axes.grid()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _keys(records: Sequence[SharpnessRecord]) -> list[Line2D]:
    """Return the legend's entries; none for more checkpoints than looks."""
    count = len(records)
    if count > MOST_LOOKS:
        return []
    names = [label(record.checkpoint) for record in records]
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


def _legend_columns(keys: Sequence[Line2D], width: float) -> int:
    widest = max(text_size(str(key.get_label()), style.SMALL_SIZE)[0] for key in keys) / POINTS + 0.25
    return max(1, min(len(keys), int(width / widest)))


def _legend_rows(keys: Sequence[Line2D], width: float) -> int:
    return -(-len(keys) // _legend_columns(keys, width)) if keys else 0


def _draw_legend(page: Page, keys: Sequence[Line2D], rows: int) -> None:
    page.figure.legend(
        handles=list(keys), ncols=_legend_columns(keys, page.width), loc="lower center", handletextpad=0.2,
        columnspacing=1.0, labelspacing=0.2, borderpad=0.1, bbox_to_anchor=(0.5, 0.0),
    )  # fmt: skip
