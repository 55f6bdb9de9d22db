"""Methods as points: sharpness against accuracy, or against the generalisation gap, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.axis_labels import dress_axis
from fedscope.figures.label_placement import POINTS, Points, place, samples, text_size, width_of
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Dots, Panel, Part, Ticks
from fedscope.figures.text.labels import family

MOST_POINTS = 24
MARKER = 5.0  # diameter in points
MARGINS = ((0.08, 0.07), (0.2, 0.07))  # of the axes' width and height, below and above the points
HIGH, LEFT = 2.35, 0.48  # inches

Reach = tuple[float, float]  # value and half of its 95 % interval, NaN where there is none
Colors = Mapping[str, tuple[str, style.Color]]


def colors_by_family(names: Sequence[str]) -> dict[str, tuple[str, style.Color]]:
    """Return for each of ``names`` the one that it adds to, or itself, and the colour of both."""
    bases = [family(name, names) or name for name in names]
    colors = dict(zip(dict.fromkeys(bases), style.method_colors(len(set(bases))), strict=True))
    return {name: (base, colors[base]) for name, base in zip(names, bases, strict=True)}


@dataclass(frozen=True)
class MethodPoint:
    """One method: its name, its place by the axis' name, and its height."""

    name: str
    x: Mapping[str, Reach]
    y: Reach


def tradeoff_figure(
    points: Sequence[MethodPoint],
    *,
    y_label: str,
    title: str = "",
    caption: str = "",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw the points in one panel for each quantity of ``x``, with 95 % intervals along both axes.

    A method is a hollow point; one that adds to it is a filled one of its colour, to which an arrow leads.
    """
    if not 1 <= len(points) <= MOST_POINTS:
        raise UserError(f"one figure shows 1 to {MOST_POINTS} methods, not {len(points)}: make several")
    for point in points:
        if not np.isfinite([point.y[0], *(value for value, _ in point.x.values())]).all():
            raise UserError(f"a value of {point.name} is not finite, so it has no place; see --json")
    colors = colors_by_family([point.name for point in points])
    added = sorted({name[len(base) + 1 :] for name, (base, _) in colors.items()} - {""})
    panels = [_panel(points, quantity, colors, added, y_label) for quantity in points[0].x]
    figure = panels_figure(
        panels, columns=len(panels), width=width, high=HIGH, left=LEFT, title=title, caption=caption
    )
    with style.paper_style():
        for axes, quantity in zip(figure.axes, points[0].x, strict=True):
            _label(axes, points, quantity, colors, len(added))
        dress_axis(figure.axes[0].yaxis, y_label, figure.axes[0].get_ylim(), room=POINTS * HIGH, ticks=5)
    return figure


def _panel(
    points: Sequence[MethodPoint], quantity: str, colors: Colors, added: Sequence[str], y_label: str
) -> Panel:
    at = np.array([(point.x[quantity], point.y) for point in points])  # (methods, axes, value and error)
    values, errors = at[..., 0], np.nan_to_num(at[..., 1])
    parts: list[Part] = []
    for label, filled in (("alone", False), (f"with {' or '.join(added)}", True)) if added else ():
        key: dict[str, Any] = {"label": label, "color": style.FAINT_INK, "filled": filled, "size": MARKER}
        parts.append(Dots(np.empty(0), np.empty(0), **key))
    for index, point in enumerate(points):
        base, color = colors[point.name]
        x, y = values[index, :, None]
        wide, high = errors[index, :, None]
        look: dict[str, Any] = {"color": color, "filled": point.name != base or not added, "size": MARKER}
        parts.append(Dots(x, y, across=wide, up=high, **look))
    (left, bottom), (right, top) = _limits(values, errors)
    x, y = Ticks(5, limits=(left, right)), Ticks(5, limits=(bottom, top))
    return Panel(parts, quantity, y_label, x=x, y=y, grid="both")


def _limits(at: Points, errors: Points) -> Points:
    low, high = (at - errors).min(axis=0), (at + errors).max(axis=0)
    extent = np.where(high > low, high - low, np.abs(high) + 1e-12)
    below, above = np.array(MARGINS)
    return np.array([low - below * extent, high + above * extent])


def _label(axes: Axes, points: Sequence[MethodPoint], quantity: str, colors: Colors, additions: int) -> None:
    """Draw the arrows and the names; a name is left out where colour and fill identify its point."""
    page = (width_of(axes), POINTS * HIGH)
    at = {point.name: (point.x[quantity][0], point.y[0]) for point in points}
    lines, labels = [], {}
    for point in points:
        (x, y), (base, color) = at[point.name], colors[point.name]
        wide, high = np.nan_to_num([point.x[quantity][1], point.y[1]])
        lines += [[(x - wide, y), (x + wide, y)], [(x, y - high), (x, y + high)]]
        labels[point.name] = base if point.name == base else (additions > 1) * point.name[len(base) :]
        if base in at and base != point.name:
            look: dict[str, Any] = {"arrowstyle": "-|>", "color": color, "lw": 1.0, "mutation_scale": 7}
            arrow = {**look, "shrinkA": 3.5, "shrinkB": 3.5}
            axes.annotate("", (x, y), at[base], arrowprops=arrow, zorder=3)
            lines.append([at[base], (x, y)])
    named = sorted(labels, key=lambda name: not labels[name])
    texts = [style.typeset(labels[name]) for name in named if labels[name]]
    spots: Points = axes.transLimits.transform([at[name] for name in named]) * page
    ink = [samples(axes.transLimits.transform(line) * page) for line in lines]
    sizes = np.array([text_size(text, style.TEXT_SIZE) for text in texts])
    places = place(spots, sizes, page=page, radius=MARKER / 2 + 1.0, lines=np.concatenate(ink))
    for name, text, found in zip(named, texts, places, strict=False):
        if found is not None:
            x, y = np.array(found.middle) / page
            axes.text(
                x, y, text, fontsize=style.TEXT_SIZE, color=colors[name][1], ha="center", va="center",
                zorder=5,
                transform=axes.transAxes, path_effects=[withStroke(linewidth=1.5, foreground="white")],
            )  # fmt: skip
