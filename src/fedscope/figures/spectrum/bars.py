"""λ_max and trace of several checkpoints, or of the clients of one, as bars with their errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.intervals import reach_of
from fedscope.figures.label_placement import text_size
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Entry
from fedscope.records.hessian_record import HessianRecord

MOST_BARS = 100
NO_ERROR = "±?"
INTERVALS = "± 95 % intervals"
MOST_NAMED = 20  # bars that get a tick each

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.1, 0.08, 0.34
HIGH, GAP, TITLE_LINE, SMALL_LINE = 0.9, 0.14, 0.17, 0.115
LONGEST_NAME = 1.8
SLOPE = 0.5  # of slanted names: how high they reach, in their lengths


@dataclass(frozen=True)
class Bar:
    """One checkpoint or client: its name or number, and of each quantity value and half the 95 % interval."""

    name: str
    values: Mapping[str, tuple[float, float]]  # NaN where unknown


def checkpoint_bars(records: Sequence[HessianRecord], labels: Sequence[str]) -> list[Bar]:
    """Return a bar per Hessian record; the trace's error is that of probes and data together."""
    return [
        Bar(
            name,
            {
                "λ_max": _bar(record.lambda_max, record.lambda_max.stderr_data),
                "trace": _bar(record.trace, record.trace.stderr_probe, record.trace.stderr_data),
            },
        )
        for record, name in zip(records, labels, strict=True)
    ]


def client_bars(crossing: CrossClientEntry) -> list[Bar]:
    """Return a bar per client of a comparison of clients; the trace's error is the probes'."""
    if not crossing.traces:
        raise UserError(
            "the record has no traces of single clients: measure it again with "
            "'fedscope hessian --clients --recompute'"
        )
    bars = []
    for place, number in enumerate(crossing.client_numbers):
        trace = crossing.traces[place]
        values = {"trace": _bar(trace, trace.stderr)}
        if crossing.lambda_max:
            top = crossing.lambda_max[place]
            values = {"λ_max": _bar(top, top.stderr_data), **values}
        bars.append(Bar(str(number), values))
    return bars


def bar_figure(
    bars: Sequence[Bar],
    *,
    axis: str = "",
    title: str = "",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw a panel per quantity with a bar and its 95 % interval for each checkpoint or client.

    A bar whose error is not known is marked with ±?, and the note below says what this means. ``axis`` is
    what the bars are, such as "client"; ``caption`` begins the note; ``width`` is in inches.
    """
    if not 1 <= len(bars) <= MOST_BARS:
        raise UserError(f"one figure shows 1 to {MOST_BARS} bars, not {len(bars)}: make several figures")
    names = list(dict.fromkeys(name for bar in bars for name in bar.values))
    if not any(math.isfinite(value) for bar in bars for value, _ in bar.values.values()):
        raise UserError("no value is finite, so there is nothing to draw; see --json")
    with style.paper_style():
        labels = [style.typeset(bar.name) for bar in bars]
        room = (width - LEFT - RIGHT) / len(bars)
        longest = max(text_size(label, style.SMALL_SIZE)[0] for label in labels) / POINTS
        slanted = longest > 0.9 * room and not all(bar.name.isdigit() for bar in bars)
        bottom = BOTTOM + (min(longest, LONGEST_NAME) * SLOPE if slanted else 0.0) - 0.14 * (not axis)
        top = TOP + TITLE_LINE * bool(title)
        notes = wrapped(_note(bars, caption), width=width, size=style.SMALL_SIZE)
        height = top + len(names) * HIGH + (len(names) - 1) * GAP + bottom + SMALL_LINE * len(notes)
        page = Page(width=width, height=height)
        page.write_notes(notes, top=height - SMALL_LINE * len(notes) - 0.02, step=SMALL_LINE)
        if title:
            look = {"fontsize": style.TITLE_SIZE, "fontweight": "bold"}
            page.write(style.typeset(title), center=width / 2, top=TOP, **look)
        for place, name in enumerate(names):
            box = page.box(left=LEFT, top=top, width=width - LEFT - RIGHT, height=HIGH)
            axes = page.figure.add_axes(box)
            _draw(axes, [bar.values.get(name, (math.nan, math.nan)) for bar in bars])
            axes.set_ylabel(style.typeset(name))
            axes.yaxis.set_label_coords(-0.72 * LEFT / (width - LEFT - RIGHT), 0.5)
            _name(axes, labels, slanted=slanted, shown=place == len(names) - 1)
            top += HIGH + GAP
        axes.set_xlabel(axis)
    return page.figure


def _note(bars: Sequence[Bar], caption: str) -> str:
    pairs = [pair for bar in bars for pair in bar.values.values() if math.isfinite(pair[0])]
    known = [INTERVALS] * any(math.isfinite(error) for _, error in pairs)
    unknown = [f"{NO_ERROR}: not known, from one batch or by this engine"] * any(
        not math.isfinite(error) for _, error in pairs
    )
    return "; ".join([caption] * bool(caption) + known + unknown)


def _bar(entry: Entry, *stderrs: float) -> tuple[float, float]:
    return entry.value, reach_of(entry, *stderrs)


def _draw(axes: Axes, values: Sequence[tuple[float, float]]) -> None:
    at = np.arange(len(values))
    heights, errors = np.array(values, dtype=np.float64).T
    axes.bar(at, heights, width=0.72, color=style.method_colors(1)[0], alpha=0.75, linewidth=0)
    bars = axes.errorbar(at, heights, yerr=errors, fmt="none", ecolor=style.INK, elinewidth=0.7, capsize=2)
    bars.lines[2][0].set_capstyle("butt")
    for place in np.flatnonzero(~np.isfinite(heights)).tolist():
        axes.text(place, 0, " not finite", rotation=90, fontsize=style.SMALL_SIZE, ha="center", va="bottom",
                  color=style.FAINT_INK)  # fmt: skip
    for place in np.flatnonzero(np.isfinite(heights) & ~np.isfinite(errors)).tolist():
        axes.annotate(
            NO_ERROR, (place, max(heights[place], 0)), (0, 1.5), textcoords="offset points", ha="center",
            va="bottom", fontsize=style.SMALL_SIZE, color=style.FAINT_INK,
        )  # fmt: skip
    axes.axhline(0, color=style.INK, linewidth=0.5)
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)


def _name(axes: Axes, labels: Sequence[str], *, slanted: bool, shown: bool) -> None:
    every = 1 if slanted else -(-len(labels) // MOST_NAMED)
    look: dict[str, Any] = {
        "rotation": math.degrees(math.asin(SLOPE)),
        "ha": "right",
        "rotation_mode": "anchor",
    }
    axes.set_xticks(
        range(0, len(labels), every), labels[::every] if shown else [], **(look if slanted else {})
    )
