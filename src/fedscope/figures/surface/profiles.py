"""The loss, and the accuracy, along lines through weight space: one curve per line, in shared axes.

The barrier is where the loss most exceeds the straight line between the losses of the line's two ends
(Frankle et al. 2020 measure linear connectivity by it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.axis_labels import coordinate
from fedscope.figures.color_scale import Grid, format_value, is_loss, is_percentage
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.intervals import reach
from fedscope.figures.label_placement import fitting_size, text_size
from fedscope.figures.surface.panels import array, cell_edges, check_axis, grid_of
from fedscope.figures.surface.shown import Mark, Surface
from fedscope.figures.text.labels import shared_name

if TYPE_CHECKING:
    from fedscope.records.landscape_record import BarrierEntry

MOST_LINES = 10
LOG_FROM = 30.0  # ratio of the largest to the smallest loss from which the axis is logarithmic

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.12, 0.06, 0.36
HIGH, LOW, GAP = 1.6, 0.8, 0.1  # the loss's panel, the others'
TITLE_LINE, SMALL_LINE = 0.15, 0.115


@dataclass(frozen=True)
class _Line:
    name: str
    axis: str
    x: Grid
    values: dict[str, Grid]  # by metric
    reach: Grid | None  # half of the 95 % interval of the loss over samples
    marks: tuple[Mark, ...]
    barrier: BarrierEntry | None
    look: dict[str, Any]


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

    The loss axis is logarithmic where the losses are positive and span a factor of ``LOG_FROM`` or more. The
    ends are marked and, where all lines have the same, named. A barrier is drawn from the straight line up to
    the loss; of several lines, the legend tells their heights. ``metrics`` default to the accuracies that all
    lines have; ``width`` is in inches.
    """
    if not 1 <= len(surfaces) <= MOST_LINES:
        raise UserError(f"one figure shows 1 to {MOST_LINES} profiles, not {len(surfaces)}: make several")
    barriers = [None] * len(surfaces) if barriers is None else barriers
    names = ["loss", *(_shared_accuracies(surfaces) if metrics is None else metrics)]
    lines = [
        _line(surface, label, barrier, names, index)
        for index, (surface, label, barrier) in enumerate(zip(surfaces, labels, barriers, strict=True))
    ]
    for name in names:
        if not any(np.isfinite(line.values[name]).any() for line in lines):
            raise UserError(f"no {name} on the line is finite: choose a smaller --span")
    with style.paper_style():
        return _draw(lines, names, title=title, caption=caption, width=width)


def draw_profile(axes: Axes, surface: Surface, label: str, *, metric: str = "loss") -> None:
    """Draw one metric along one line."""
    line = _line(surface, label, None, [metric], 0)
    if not np.isfinite(line.values[metric]).any():
        raise UserError(f"no {metric} on the line is finite: choose a smaller --span")
    _draw_metric(axes, [line], metric, (float(line.x[0]), float(line.x[-1])))
    axes.set_xlabel(style.typeset(line.axis))


def _line(
    surface: Surface, label: str, barrier: BarrierEntry | None, names: Sequence[str], index: int
) -> _Line:
    if len(surface.axes) != 1:
        raise UserError(f"'{label}' is a plane and no profile: draw planes and profiles apart")
    check_axis(surface.axes[0], label)
    return _Line(
        name=label,
        axis=surface.axes[0].name,
        x=array(surface.axes[0].values),
        values={name: grid_of(surface, name, label) for name in names},
        reach=None if surface.stderr is None else reach(1.0) * array(surface.stderr),
        marks=surface.marks,
        barrier=barrier,
        look=style.curve_look(index),
    )


def _shared_accuracies(surfaces: Sequence[Surface]) -> list[str]:
    return [
        name
        for name in surfaces[0].metrics
        if is_percentage(name) and all(name in s.metrics for s in surfaces)
    ]


def _draw(lines: Sequence[_Line], names: Sequence[str], *, title: str, caption: str, width: float) -> Figure:
    across = width - LEFT - RIGHT
    limits = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
    ends = _placed_names(_shared_marks(lines), limits, width)
    notes = [
        line
        for text in (caption, _non_finite(lines))
        for line in wrapped(text, width=width, size=style.SMALL_SIZE)
    ]
    legend = SMALL_LINE * len(lines) + 0.05 if len(lines) > 1 else 0.0
    above = SMALL_LINE * (1 + max(end.row for end in ends)) if ends else 0.03
    top = TOP + TITLE_LINE * bool(title) + SMALL_LINE * len(notes) + legend + above
    page = Page(width=width, height=top + HIGH + (len(names) - 1) * (GAP + LOW) + BOTTOM)
    titles = [style.typeset(title)] * bool(title)
    page.write_head(titles, notes, top=TOP, title_step=TITLE_LINE, note_step=SMALL_LINE)
    for end in ends:
        at = top - SMALL_LINE * (1 + end.row)
        page.write(end.text, center=end.center, top=at, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)
    panels: list[Axes] = []
    for name in names:
        tall = LOW if panels else HIGH
        axes = page.figure.add_axes(page.box(left=LEFT, top=top, width=across, height=tall))
        _draw_metric(axes, lines, name, limits)
        axes.yaxis.set_label_coords(-0.66 * LEFT / across, 0.5)
        panels.append(axes)
        top += tall + GAP
    if len(lines) == 1:
        _draw_barrier(panels[0], lines[0])
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    axis = style.typeset(shared_name([line.axis for line in lines]))
    panels[-1].set_xlabel(axis, fontsize=fitting_size(axis, POINTS * (width - 0.1)))
    if legend:
        panels[0].legend(
            handles=_legend(lines), loc="lower left", borderaxespad=0, borderpad=0, labelspacing=0.25,
            handlelength=3, bbox_to_anchor=(0, 1 + (above + 0.02) / HIGH),
        )  # fmt: skip
    return page.figure


def _draw_metric(axes: Axes, lines: Sequence[_Line], name: str, limits: tuple[float, float]) -> None:
    unit = 100.0 if is_percentage(name) else 1.0
    for line in lines:
        values = unit * np.where(np.isfinite(line.values[name]), line.values[name], np.nan)
        axes.plot(line.x, values, **line.look)
        if name == "loss" and line.reach is not None:
            low, high = values - line.reach, values + line.reach
            axes.fill_between(line.x, low, high, color=line.look["color"], alpha=0.22, linewidth=0)
    for at in sorted({mark.at[0] for line in lines for mark in line.marks}):
        axes.axvline(at, color="0.7", linewidth=0.5, zorder=0.5)
    _hatch(axes, lines, name)
    finite = np.concatenate([line.values[name][np.isfinite(line.values[name])] for line in lines])
    logarithmic = is_loss(name) and finite.min() > 0 and finite.max() > LOG_FROM * finite.min()
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(finite.min() / 1.3, finite.max() * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5 if name == "loss" else 3))
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value))
    axes.set_xlim(*limits)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(coordinate)
    axes.spines[["top", "right"]].set_visible(False)
    scale = " (%)" if is_percentage(name) else " (log scale)" if logarithmic else ""
    axes.set_ylabel(style.typeset(name) + scale)


def _hatch(axes: Axes, lines: Sequence[_Line], name: str) -> None:
    for line in lines:
        borders = cell_edges(line.x)
        for i in np.flatnonzero(~np.isfinite(line.values[name])):
            axes.axvspan(borders[i], borders[i + 1], zorder=0, **style.HATCHED)


def _non_finite(lines: Sequence[_Line]) -> str:
    holes = [~np.isfinite(line.values["loss"]) for line in lines]
    count, total = sum(int(hole.sum()) for hole in holes), sum(hole.size for hole in holes)
    return f"{count} of {total} points not finite (hatched)" if count else ""


def _draw_barrier(axes: Axes, line: _Line) -> None:
    if line.barrier is None or len(line.marks) < 2:
        return
    ends = sorted((line.marks[0].at[0], line.marks[-1].at[0]))
    losses = np.interp(ends, line.x, line.values["loss"])
    between = np.linspace(ends[0], ends[1], 50)  # a straight line is none on a logarithmic axis
    straight = np.interp(between, ends, losses)
    axes.plot(between, straight, color=style.INK, linewidth=0.6, linestyle=(0, (2, 2)), zorder=1.5)
    if not line.barrier.height > 0:
        return
    foot = float(np.interp(line.barrier.at, ends, losses))
    top = foot + line.barrier.height
    axes.annotate(
        "", (line.barrier.at, top), (line.barrier.at, foot),
        arrowprops={"arrowstyle": "<->", "color": style.INK, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0,
                    "mutation_scale": 5},
    )  # fmt: skip
    middle = math.sqrt(foot * top) if axes.get_yscale() == "log" else (foot + top) / 2
    axes.annotate(
        f"barrier {format_value(line.barrier.height, digits=3)}",
        (line.barrier.at, middle), (4, 0), textcoords="offset points", va="center", fontsize=style.SMALL_SIZE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
    )  # fmt: skip


def _legend(lines: Sequence[_Line]) -> list[Line2D]:
    return [Line2D([], [], label=style.typeset(_named(line)), **line.look) for line in lines]


def _named(line: _Line) -> str:
    if line.barrier is None:
        return line.name
    height = line.barrier.height
    return f"{line.name}, {f'barrier {height:.3g}' if height > 0 else 'no barrier'}"


def _shared_marks(lines: Sequence[_Line]) -> tuple[Mark, ...]:
    first = [(mark.label, mark.at) for mark in lines[0].marks]
    same = all([(mark.label, mark.at) for mark in line.marks] == first for line in lines)
    return lines[0].marks if same else ()


@dataclass(frozen=True)
class _Name:
    text: str
    center: float  # inches
    row: int  # above the axes


def _placed_names(marks: Sequence[Mark], limits: tuple[float, float], width: float) -> list[_Name]:
    found: list[_Name] = []
    taken: list[float] = []  # right end of each row
    for mark in sorted(marks, key=lambda mark: mark.at):
        text = style.typeset(mark.label)
        half = text_size(text, style.SMALL_SIZE)[0] / POINTS / 2
        share = (mark.at[0] - limits[0]) / (limits[1] - limits[0])
        center = min(max(LEFT + share * (width - LEFT - RIGHT), half + 0.05), width - half - 0.05)
        rows = [row for row, end in enumerate(taken) if center - half > end + 0.06]
        row = rows[0] if rows else len(taken)
        taken[row : row + 1] = [center + half]
        found.append(_Name(text, center, row))
    return found
