"""The loss, and the accuracy, along lines through weight space: one curve per line, in shared axes.

The barrier is where the loss most exceeds the straight line between the losses of the line's two ends
(Frankle et al. 2020 measure linear connectivity by it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value, is_loss, is_percentage
from fedscope.figures.label_placement import POINTS, fitting_size, text_size
from fedscope.figures.page import RIGHT, SMALL_LINE, Page, panels_figure
from fedscope.figures.panels import Hatched, Line, Panel, Part, RuledLine, Ticks, reach
from fedscope.figures.surface.drawn_planes import array, cell_edges, check_axis, grid_of
from fedscope.figures.text.labels import shared_name

if TYPE_CHECKING:
    from fedscope.figures.surface.drawn_planes import Mark, Surface
    from fedscope.records.landscape_record import BarrierEntry

MOST_LINES = 10
LOG_FROM = 30.0  # ratio of the largest to the smallest loss from which the axis is logarithmic
LEFT, HIGH, LOW = 0.5, 1.6, 0.8  # inches: the loss's panel, the others'


def profile_figure(
    surfaces: Sequence[Surface],
    labels: Sequence[str],
    *,
    barriers: Sequence[BarrierEntry | None] | None = None,
    metrics: Sequence[str] | None = None,
    title: str = "",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw the loss along one or more lines with a band of 95 % intervals, other metrics under it.

    A barrier is drawn from the straight line up to the loss. ``metrics`` default to the accuracies that all
    lines have.
    """
    if not 1 <= len(surfaces) <= MOST_LINES:
        raise UserError(f"one figure shows 1 to {MOST_LINES} profiles, not {len(surfaces)}: make several")
    barriers = [None] * len(surfaces) if barriers is None else barriers
    names = ["loss", *(_shared_accuracies(surfaces) if metrics is None else metrics)]
    keys = [_named(label, barrier) for label, barrier in zip(labels, barriers, strict=True)]
    panels = [profile_panel(surfaces, keys if len(keys) > 1 else [""], name) for name in names]
    ends = _placed_names(_shared_marks(surfaces), _limits(surfaces), width)
    rows = 1 + max(row for *_, row in ends) if ends else 0
    figure = panels_figure(
        panels, high=HIGH, low=LOW, left=LEFT, keys=1, width=width, above=SMALL_LINE * rows, title=title,
        caption="; ".join(filter(None, [caption, _non_finite(surfaces)])),
    )  # fmt: skip
    loss, *_, last = figure.axes[0], figure.axes[-1]
    page = Page.of(figure)
    top = page.height * (1 - loss.get_position().y1)
    with style.paper_style():
        for text, center, row in ends:
            page.write_note(text, center=center, top=top - SMALL_LINE * (1 + row))
        last.xaxis.label.set_fontsize(fitting_size(last.get_xlabel(), POINTS * (width - 0.1)))
        if len(surfaces) == 1 and barriers[0]:
            _draw_barrier(loss, surfaces[0], barriers[0])
    return figure


def profile_panel(surfaces: Sequence[Surface], labels: Sequence[str], name: str) -> Panel:
    unit = 100.0 if is_percentage(name) else 1.0
    parts: list[Part] = []
    known = []
    for index, (surface, label) in enumerate(zip(surfaces, labels, strict=True)):
        if len(surface.axes) != 1:
            raise UserError(f"'{label}' is a plane and no profile: draw planes and profiles apart")
        check_axis(surface.axes[0], label)
        x, values = array(surface.axes[0].values), unit * grid_of(surface, name, label)
        values = np.where(np.isfinite(values), values, np.nan)
        band = reach(1.0) * array(surface.stderr) if name == "loss" and surface.stderr is not None else None
        line = Line(label, x, values, band, shaded=True, marker="", look=style.curve_look(index))
        edges = cell_edges(x)
        holes = np.flatnonzero(np.isnan(values))
        parts += [line, *[Hatched(edges[holes], edges[holes + 1])] * bool(len(holes))]
        known.append(values[np.isfinite(values)])
    marks = sorted({mark.at[0] for surface in surfaces for mark in surface.marks})
    grey = {"color": "0.7", "linewidth": 0.5, "zorder": 0.5}
    parts += [RuledLine(at, upright=True, look=grey) for at in marks]
    finite = np.concatenate(known)
    if not finite.size:
        raise UserError(f"no {name} on the line is finite: choose a smaller --span")
    log = is_loss(name) and finite.min() > 0 and finite.max() > LOG_FROM * finite.min()
    y = Ticks(5 if name == "loss" else 3)
    if log:
        y = Ticks(8, scale="log", limits=(finite.min() / 1.3, finite.max() * 1.3))
    scale = " (%)" if is_percentage(name) else " (log scale)" if log else ""
    axis = shared_name([surface.axes[0].name for surface in surfaces])
    return Panel(parts, axis, name + scale, x=Ticks(limits=_limits(surfaces)), y=y, grid="")


def _limits(surfaces: Sequence[Surface]) -> tuple[float, float]:
    places = [array(surface.axes[0].values) for surface in surfaces]
    return min(float(at[0]) for at in places), max(float(at[-1]) for at in places)


def _shared_accuracies(surfaces: Sequence[Surface]) -> list[str]:
    return [
        name
        for name in surfaces[0].metrics
        if is_percentage(name) and all(name in s.metrics for s in surfaces)
    ]


def _non_finite(surfaces: Sequence[Surface]) -> str:
    holes = [~np.isfinite(array(surface.loss)) for surface in surfaces]
    count, total = sum(int(hole.sum()) for hole in holes), sum(hole.size for hole in holes)
    return f"{count} of {total} points not finite (hatched)" if count else ""


def _draw_barrier(axes: Axes, line: Surface, barrier: BarrierEntry) -> None:
    if len(line.marks) < 2:
        return
    ends = sorted((line.marks[0].at[0], line.marks[-1].at[0]))
    losses = np.interp(ends, array(line.axes[0].values), array(line.loss))
    between = np.linspace(ends[0], ends[1], 50)  # a straight line is none on a logarithmic axis
    straight = np.interp(between, ends, losses)
    axes.plot(between, straight, color=style.INK, linewidth=0.6, linestyle=(0, (2, 2)), zorder=1.5)
    if not barrier.height > 0:
        return
    foot = float(np.interp(barrier.at, ends, losses))
    top = foot + barrier.height
    axes.annotate(
        "", (barrier.at, top), (barrier.at, foot),
        arrowprops={"arrowstyle": "<->", "color": style.INK, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0,
                    "mutation_scale": 5},
    )  # fmt: skip
    middle = math.sqrt(foot * top) if axes.get_yscale() == "log" else (foot + top) / 2
    axes.annotate(
        f"barrier {format_value(barrier.height, digits=3)}",
        (barrier.at, middle), (4, 0), textcoords="offset points", va="center", fontsize=style.SMALL_SIZE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
    )  # fmt: skip


def _named(label: str, barrier: BarrierEntry | None) -> str:
    if barrier is None:
        return label
    return f"{label}, {f'barrier {barrier.height:.3g}' if barrier.height > 0 else 'no barrier'}"


def _shared_marks(lines: Sequence[Surface]) -> Sequence[Mark]:
    first = [(mark.label, mark.at) for mark in lines[0].marks]
    same = all([(mark.label, mark.at) for mark in line.marks] == first for line in lines)
    return lines[0].marks if same else ()


def _placed_names(
    marks: Sequence[Mark], limits: tuple[float, float], width: float
) -> list[tuple[str, float, int]]:
    """Return the names of marks, each with its middle [inch] and its row above the axes."""
    found: list[tuple[str, float, int]] = []
    taken: list[float] = []  # right end of each row
    for mark in sorted(marks, key=lambda mark: mark.at):
        text = style.typeset(mark.label)
        half = text_size(text, style.SMALL_SIZE)[0] / POINTS / 2
        share = (mark.at[0] - limits[0]) / (limits[1] - limits[0])
        center = min(max(LEFT + share * (width - LEFT - RIGHT), half + 0.05), width - half - 0.05)
        rows = [row for row, end in enumerate(taken) if center - half > end + 0.06]
        row = rows[0] if rows else len(taken)
        taken[row : row + 1] = [center + half]
        found.append((text, center, row))
    return found
