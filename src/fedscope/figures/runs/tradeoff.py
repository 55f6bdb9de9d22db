"""Methods as points: sharpness against accuracy, or against the generalisation gap, with intervals.

A method that adds to another has its colour, and an arrow leads to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.axis_labels import dress_axis
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS, Page, wrapped
from fedscope.figures.label_placement import Points, place, samples, text_size
from fedscope.figures.text.labels import family

MOST_POINTS = 24
MARKER = 5.0  # diameter in points
MARGINS = ((0.08, 0.07), (0.2, 0.07))  # of the axes' width and height, below and above the points

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.48, 0.08, 0.06, 0.34
HIGH, GAP = 2.35, 0.16
TITLE_LINE, SMALL_LINE, KEY_LINE = 0.16, 0.115, 0.16

Reach = tuple[float, float]  # value and half of its 95 % interval, NaN where there is none


def colors_by_family(names: Sequence[str]) -> dict[str, tuple[str, style.Color]]:
    """Return for each of ``names`` the one that it adds to, or itself, and the colour of both."""
    bases = [family(name, names) or name for name in names]
    colors = dict(zip(dict.fromkeys(bases), style.method_colors(len(set(bases))), strict=True))
    return {name: (base, colors[base]) for name, base in zip(names, bases, strict=True)}


@dataclass(frozen=True)
class Point:
    """One method: its name, its place by the axis' name, and its height."""

    name: str
    x: Mapping[str, Reach]
    y: Reach


@dataclass(frozen=True)
class _Mark(Point):
    """A point, and how it is drawn."""

    base: str  # the method that it adds to, or itself
    color: style.Color
    filled: bool
    label: str  # empty where colour and fill identify it


def tradeoff_figure(
    points: Sequence[Point],
    *,
    y_label: str,
    title: str = "",
    caption: str = "",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw the points in one panel for each quantity of ``x``, with 95 % intervals along both axes.

    A method is a hollow point, one that adds to it a filled one; ``width`` is in inches.
    """
    if not 1 <= len(points) <= MOST_POINTS:
        raise UserError(f"one figure shows 1 to {MOST_POINTS} methods, not {len(points)}: make several")
    for point in points:
        if not np.isfinite([point.y[0], *(value for value, _ in point.x.values())]).all():
            raise UserError(f"a value of {point.name} is not finite, so it has no place; see --json")
    marks = _marks(points)
    added = sorted({mark.name[len(mark.base) + 1 :] for mark in marks} - {""})
    quantities = list(points[0].x)
    with style.paper_style():
        titles = wrapped(title, width=width, size=style.TITLE_SIZE)
        captions = wrapped(caption, width=width, size=style.SMALL_SIZE)
        top = TOP + TITLE_LINE * len(titles) + SMALL_LINE * len(captions) + KEY_LINE * bool(added)
        page = Page(width=width, height=top + HIGH + BOTTOM)
        page.write_head(titles, captions, top=TOP, title_step=TITLE_LINE, note_step=SMALL_LINE)
        side = (width - LEFT - RIGHT - GAP * (len(quantities) - 1)) / len(quantities)
        for index, quantity in enumerate(quantities):
            left = LEFT + index * (side + GAP)
            axes = page.figure.add_axes(page.box(left=left, top=top, width=side, height=HIGH))
            _draw(axes, marks, quantity, (POINTS * side, POINTS * HIGH))
            axes.set_xlabel(style.typeset(quantity))
            if index:
                axes.tick_params(labelleft=False)
            else:
                dress_axis(axes.yaxis, y_label, axes.get_ylim(), room=POINTS * HIGH, ticks=5)
        if added:
            _draw_key(page, added, top=top - KEY_LINE)
    return page.figure


def _marks(points: Sequence[Point]) -> list[_Mark]:
    colors = colors_by_family([point.name for point in points])
    added = {name[len(base) :] for name, (base, _) in colors.items()} - {""}
    return [
        _Mark(
            **vars(point), base=base, color=color, filled=point.name != base or not added,
            label=point.name if point.name == base else (len(added) > 1) * point.name[len(base) :],
        )
        for point in points for base, color in [colors[point.name]]
    ]  # fmt: skip


def _draw_key(page: Page, added: Sequence[str], *, top: float) -> None:
    kinds = (("alone", "white"), (f"with {' or '.join(added)}", style.FAINT_INK))
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=MARKER, markerfacecolor=fill,
               markeredgecolor=style.FAINT_INK, label=style.typeset(label))
        for label, fill in kinds
    ]  # fmt: skip
    page.figure.legend(
        handles=handles, ncols=2, loc="center", fontsize=style.TEXT_SIZE, handletextpad=0.1,
        columnspacing=1.4, bbox_to_anchor=(0.5, 1 - (top + KEY_LINE / 2 - 0.02) / page.height),
    )  # fmt: skip


def _draw(axes: Axes, marks: Sequence[_Mark], quantity: str, size: tuple[float, float]) -> None:
    at = {mark.name: (mark.x[quantity][0], mark.y[0]) for mark in marks}
    errors = {mark.name: np.nan_to_num([mark.x[quantity][1], mark.y[1]]) for mark in marks}
    _limits(axes, np.array([*at.values()]), np.array([*errors.values()]))
    lines = []
    for mark in marks:
        (x, y), (wide, high) = at[mark.name], errors[mark.name]
        axes.errorbar(x, y, high, wide, fmt="none", ecolor=mark.color, elinewidth=0.7, alpha=0.6)
        axes.plot(
            x, y, "o", markersize=MARKER, markerfacecolor=mark.color if mark.filled else "white",
            markeredgecolor=mark.color, markeredgewidth=1.1, zorder=4,
        )  # fmt: skip
        lines += [[(x - wide, y), (x + wide, y)], [(x, y - high), (x, y + high)]]
        if mark.base in at and mark.base != mark.name:
            look = {"arrowstyle": "-|>", "color": mark.color, "lw": 1.0, "mutation_scale": 7}
            axes.annotate(
                "", (x, y), at[mark.base], arrowprops={**look, "shrinkA": 3.5, "shrinkB": 3.5}, zorder=3
            )
            lines.append([at[mark.base], (x, y)])
    _label(axes, marks, at, lines, size)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(lambda value, _: format_value(value))
    style.draw_grid(axes)


def _limits(axes: Axes, at: Points, errors: Points) -> None:
    low, high = (at - errors).min(axis=0), (at + errors).max(axis=0)
    extent = np.where(high > low, high - low, np.abs(high) + 1e-12)
    below, above = np.array(MARGINS)
    (left, bottom), (right, top) = low - below * extent, high + above * extent
    axes.set(xlim=(left, right), ylim=(bottom, top))


def _label(
    axes: Axes,
    marks: Sequence[_Mark],
    at: Mapping[str, tuple[float, float]],
    lines: Sequence[Sequence[tuple[float, float]]],
    page: tuple[float, float],
) -> None:
    named = sorted(marks, key=lambda mark: not mark.label)
    texts = [style.typeset(mark.label) for mark in named if mark.label]
    spots: Points = axes.transLimits.transform([at[mark.name] for mark in named]) * page
    ink = [samples(axes.transLimits.transform(line) * page) for line in lines]
    sizes = np.array([text_size(text, style.TEXT_SIZE) for text in texts])
    places = place(spots, sizes, page=page, radius=MARKER / 2 + 1.0, lines=np.concatenate(ink))
    for mark, text, found in zip(named, texts, places, strict=False):
        if found is not None:
            x, y = np.array(found.middle) / page
            axes.text(
                x, y, text, fontsize=style.TEXT_SIZE, color=mark.color, ha="center", va="center", zorder=5,
                transform=axes.transAxes, path_effects=[withStroke(linewidth=1.5, foreground="white")],
            )  # fmt: skip
