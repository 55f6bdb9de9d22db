"""Known networks on a plane: points with names or numbers, trajectories, and how far each is from the plane.

A mark stands at a network's projection.
"""

import math
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.patheffects import AbstractPathEffect, Normal, withStroke
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.label_placement import (
    POINTS,
    Place,
    Points,
    covers,
    dress_axis,
    place,
    samples,
    text_size,
)

if TYPE_CHECKING:
    from fedscope.figures.surface.drawn_planes import Mark

LABEL_SIZE = 6.0  # points
POINT, SMALL_POINT = 3.6, 2.2  # diameters in points
MOST_ROUNDS_NAMED = 8
SHORTEST_ARROW, BETWEEN_ARROWS = 7.0, 16.0  # points
IN_PLANE = 1e-5  # distance, relative to the spread of the marks

_NUMBERED = re.compile(r"(\w+) (\d+)")


def kind_and_numbers(marks: "Sequence[Mark]") -> tuple[str, dict[int, int]]:
    """Return the most frequent kind of the marks ("client", "round"), and the number of each by place.

    ("", {}) where no two marks are numbered alike.
    """
    found = {i: match for i, mark in enumerate(marks) if (match := _NUMBERED.fullmatch(mark.label))}
    kinds = [match[1] for match in found.values()]
    kind = max(kinds, key=kinds.count, default="")
    if kinds.count(kind) < 2:
        return "", {}
    return kind, {i: int(match[2]) for i, match in found.items() if match[1] == kind}


def short_labels(marks: "Sequence[Mark]") -> list[str]:
    _, numbers = kind_and_numbers(marks)
    return [str(numbers.get(i, mark.label)) for i, mark in enumerate(marks)]


def has_distances(marks: "Sequence[Mark]") -> bool:
    """Say whether any mark lies off the plane by more than rounding."""
    if not marks:
        return False
    places = np.array([mark.at for mark in marks])
    spread = float(np.ptp(places, axis=0).max())
    return max(mark.distance for mark in marks) > IN_PLANE * (spread or 1.0)


def draw_marks(
    axes: Axes,
    marks: "Sequence[Mark]",
    *,
    path: bool,
    size: tuple[float, float],
    fill: Callable[[float, float], ColorType],
    reached: int | None = None,
) -> None:
    """Draw marks on a plane of ``size`` inches whose limits are set, label them, and a path's direction.

    Labels of contour lines that a mark's would touch are hidden; marks whose label has no room stay without.
    """
    if not marks:
        return
    page = (POINTS * size[0], POINTS * size[1])
    everywhere = _on_page(axes, marks, page)
    points, labels = everywhere[:reached], short_labels(marks)
    _, numbers = kind_and_numbers(marks)
    if path:
        _draw_path(axes, points, page)
    _draw_points(axes, points, numbers, page, path=path)
    order = _path_order(len(points), numbers) if path else _cloud_order(points, numbers)
    order = order if reached is None else order[:2]
    names = [style.typeset(labels[i]) for i in order]
    sizes = np.array([text_size(name, LABEL_SIZE) for name in names])
    rest = [i for i in range(len(points)) if i not in order]
    places = place(
        points[[*order, *rest]],
        sizes,
        page=page,
        radius=(SMALL_POINT if path else POINT) / 2 + 0.6,
        lines=samples(points) if path and len(points) > 1 else None,
    )
    for name, found in zip(names, places, strict=True):
        if found:
            _write(axes, name, found, page, fill)
    _clear(axes, everywhere, places, sizes, page, path=path)


def draw_distances(
    axes: Axes,
    marks: "Sequence[Mark]",
    *,
    path: bool,
    highest: float,
    leftmost: bool,
    width: float,
    reached: int | None = None,
) -> None:
    """Draw each mark's distance from the plane, of a path those ``reached``; ``highest`` ends the axis."""
    kind, numbers = kind_and_numbers(marks)
    distances = [mark.distance for mark in marks]
    if path and len(numbers) == len(marks):
        at = [numbers[i] for i in range(len(marks))]
        axes.plot(
            at[:reached],
            distances[:reached],
            "-o",
            color=style.INK,
            markersize=1.6,
            linewidth=0.7,
            clip_on=False,
        )
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlim(min(at) - 0.5, max(at) + 0.5)
    else:
        axes.vlines(range(len(marks)), 0, distances, color=style.INK, linewidth=0.7)
        for i, distance in enumerate(distances):
            marker = _marker(i, len(marks), numbers, path=path)
            axes.plot(
                i, distance, marker, color=style.INK, markersize=_SIZES[marker], markeredgewidth=0,
                clip_on=False,
            )  # fmt: skip
        axes.set_xlim(-0.7, len(marks) - 0.3)
        labels = [style.typeset(label) for label in short_labels(marks)]
        ticks = sorted(numbers) or range(len(marks))
        room = max(text_size(labels[i], style.SMALL_SIZE)[0] for i in ticks) + 3.0
        every = -(-len(ticks) // max(1, int(POINTS * width / room)))
        axes.set_xticks(ticks[::every], [labels[i] for i in ticks[::every]])
    axes.set_ylim(0, 1.08 * highest)
    name = "distance\nfrom plane"
    dress_axis(axes.yaxis, name, (0.0, 1.08 * highest), room=POINTS, ticks=2, longest=4)
    axes.yaxis.label.set(fontsize=style.SMALL_SIZE, linespacing=0.9)
    axes.yaxis.labelpad = 2.5
    axes.yaxis.label.set_visible(leftmost)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(kind)
    axes.tick_params(labelleft=leftmost)


_LABEL = "label of a mark"
LINE_LABEL_ROOM = 6.0  # points from a mark's label, and 4 more from a mark, to that of a contour line
_SIZES = {"*": 4.5, "s": 2.8, "o": 2.4}  # of marks in the panel of distances


def _marker(i: int, count: int, numbers: dict[int, int], *, path: bool) -> str:
    special = i == count - 1 if path else _is_special(i, numbers)
    return "*" if special else "s" if path and i == 0 else "o"


def _is_special(i: int, numbers: dict[int, int]) -> bool:
    return bool(numbers) and i not in numbers


def _on_page(axes: Axes, marks: "Sequence[Mark]", page: tuple[float, float]) -> Points:
    places: Points = axes.transLimits.transform(np.array([mark.at for mark in marks])) * page
    return places


def _shares(points: Points, page: tuple[float, float]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = points / page
    return shares


def _draw_path(axes: Axes, points: Points, page: tuple[float, float]) -> None:
    x, y = _shares(points, page).T
    axes.plot(x, y, color="white", linewidth=0.8, transform=axes.transAxes, zorder=4, path_effects=_casing())
    travelled = BETWEEN_ARROWS
    for start, end in pairwise(points):
        length = float(np.hypot(*(end - start)))
        travelled += length
        if length >= SHORTEST_ARROW and travelled >= BETWEEN_ARROWS:
            travelled = 0.0
            _draw_arrow(axes, _shares((start + end) / 2, page), end - start)


def _draw_arrow(axes: Axes, at: Points, ray: Points) -> None:
    # slender: the equilateral triangle of marker (3, 0, angle) points in three directions alike
    head = MarkerStyle(_HEAD, transform=Affine2D().rotate(math.atan2(ray[1], ray[0])))
    axes.plot(
        at[0], at[1], marker=head, markersize=6.0, color="white", markeredgecolor=style.INK,
        markeredgewidth=0.4, transform=axes.transAxes, zorder=4.5,
    )  # fmt: skip


_HEAD = Path([(-0.8, 0.5), (0.8, 0.0), (-0.8, -0.5), (-0.8, 0.5)], closed=True)


def _draw_points(
    axes: Axes, points: Points, numbers: dict[int, int], page: tuple[float, float], *, path: bool
) -> None:
    for i, (x, y) in enumerate(_shares(points, page)):
        marker = _marker(i, len(points), numbers, path=path)
        diameter = {"*": 6.5, "s": 3.4, "o": SMALL_POINT if path else POINT}[marker]
        axes.plot(
            x, y, marker, markersize=diameter, color="white", markeredgecolor=style.INK,
            markeredgewidth=0.5, transform=axes.transAxes, zorder=6 if marker == "*" else 5,
        )  # fmt: skip


def _path_order(count: int, numbers: dict[int, int]) -> list[int]:
    """Return which marks of a path are named, the most important first: the ends, then round numbers."""
    ends = [count - 1, 0] if count > 1 else [0]
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
        inner = [i for i in range(1, count - 1) if numbers.get(i, i) % step == 0]
        if len(inner) <= MOST_ROUNDS_NAMED:
            break
    return [*ends, *inner]


def _cloud_order(points: Points, numbers: dict[int, int]) -> list[int]:
    """Return named marks first, then the innermost: they have the fewest places to go."""
    distance = np.hypot(*(points - points.mean(axis=0)).T)
    return sorted(range(len(points)), key=lambda i: (i in numbers, distance[i]))


def _write(
    axes: Axes,
    name: str,
    found: Place,
    page: tuple[float, float],
    fill: Callable[[float, float], ColorType],
) -> None:
    if found.leader is not None:
        x, y = _shares(found.leader, page).T
        axes.plot(
            x, y, color="white", linewidth=0.45, transform=axes.transAxes, zorder=4.8,
            path_effects=_casing(1.1),
        )  # fmt: skip
    x, y = _shares(np.array(found.middle), page)
    color = fill(*axes.transLimits.inverted().transform((x, y)))
    axes.text(
        x, y, name, fontsize=LABEL_SIZE, color=style.ink_on(color), ha="center", va="center",
        transform=axes.transAxes, zorder=7, gid=_LABEL,
        path_effects=[withStroke(linewidth=2.2, foreground=color)],
    )  # fmt: skip


def _clear(
    axes: Axes,
    points: Points,
    places: Sequence[Place | None],
    sizes: Points,
    page: tuple[float, float],
    *,
    path: bool,
) -> None:
    line = samples(points) if path and len(points) > 1 else points
    for text in axes.texts:
        if text.get_transform() is axes.transAxes:
            continue  # a mark's own, or the note on points that are not finite
        spot: Points = axes.transLimits.transform(text.get_position()) * page
        near = bool((np.hypot(*(points - spot).T) < LINE_LABEL_ROOM + 4).any())
        struck = bool((np.hypot(*(line - spot).T) < LINE_LABEL_ROOM).any())
        if near or struck or covers(places, sizes, spot, LINE_LABEL_ROOM):
            text.set_visible(False)


def _casing(width: float = 1.7) -> list[AbstractPathEffect]:
    return [withStroke(linewidth=width, foreground=style.INK), Normal()]
