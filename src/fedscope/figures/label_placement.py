"""The places of labels beside their points, so that no label covers a point or another label.

Each label in turn takes the nearest place of rings around its point. Everything is in typographic points from
the lower left corner of the panel, and lines are known by samples along them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.digits import SUPERSCRIPTS

Points = NDArray[np.float64]  # (k, 2)

POINTS = 72.0  # per inch
GAP = 1.2  # between a point's rim and its label
RING = 3.0  # between neighbouring rings
ANGLES = 24
MARGIN = 1.0  # to the frame and between labels
STEP = 1.5  # between samples of a line
CLEAR = 1.2  # least distance of a leader to other lines
CROSSING = 1.0  # cost of a sample of a line under a label, in points of distance
COVERED = 4.0  # of a sample of a leader that runs over a point or into another leader
NORMS = {"eigenvector": "unit norm", "random": "filter-normalised"}  # of directions, by their names' kind
TICKS = 4  # intervals between them at most
LONGEST = 5  # characters of a tick that have room beside an axis


@dataclass(frozen=True)
class Place:
    """A label's middle, and the leader to it where it stands apart from its point."""

    middle: tuple[float, float]
    leader: Points | None  # (2, 2): from the point's rim to the label


def text_size(text: str, size: float) -> tuple[float, float]:
    """Return the width and height of plain or math text of ``size`` points in the current style."""
    found = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath="$" in text)
    return float(found[0]), float(found[1])


def width_of(axes: Axes) -> float:
    figure = axes.get_figure()
    assert figure is not None
    return float(POINTS * axes.bbox.width / figure.dpi)


def fitting_size(text: str, room: float) -> float:
    return min(style.TEXT_SIZE, style.TEXT_SIZE * room / max(1.0, text_size(text, style.TEXT_SIZE)[0]))


def samples(line: Points) -> Points:
    pieces = [
        np.linspace(start, end, max(2, int(np.hypot(*(end - start)) / STEP) + 2))
        for start, end in pairwise(line)
    ]
    return np.concatenate([*pieces, line[-1:]])


def place(
    points: Points,
    sizes: Points,
    *,
    page: tuple[float, float],
    radius: float,
    lines: Points | None = None,
    reach: float = 40.0,
) -> list[Place | None]:
    """Return a place for each of the first ``len(sizes)`` points' labels, in this order; None: no room.

    ``points`` (at least k, 2) are discs of ``radius`` that no label may cover, ``sizes`` (k, 2) widths and
    heights. Labels avoid samples of ``lines`` (s, 2) where they can, and stand at most ``reach`` from a rim.
    """
    ink = np.empty((0, 2)) if lines is None else lines
    boxes, leaders = np.empty((0, 4)), np.empty((0, 2))
    found: list[Place | None] = []
    for index, size in enumerate(sizes):
        others = np.delete(points, index, axis=0)
        best: tuple[float, Points, Points] | None = None
        for distance in np.arange(radius + GAP, radius + reach, RING):
            if best is not None and distance >= best[0]:
                break  # every cost is at least the distance
            for cost, middle, rim in _ring(points[index], size, distance, radius):
                box = np.concatenate([middle - size / 2, middle + size / 2])
                if not _inside(box, page) or _overlaps(box, boxes) or _near(box, points, radius).any():
                    continue
                leader = _leader(rim, box) if distance > radius + GAP + RING else rim[None]
                if len(leader) > 1:
                    if any(_near(box, leader, MARGIN / 2).any() for box in boxes):
                        continue
                    cost += COVERED * (_hits(leader, others, radius) + _hits(leader, leaders, CLEAR))
                cost += CROSSING * (_near(box, ink, 0.0).sum() + 3 * _near(box, leaders, 0.0).sum())
                if best is None or cost < best[0]:
                    best = cost, middle, leader
        if best is None:
            found.append(None)
            continue
        _, middle, leader = best
        boxes = np.vstack([boxes, [*(middle - size / 2), *(middle + size / 2)]])
        apart = len(leader) > 1
        if apart:
            leaders = np.vstack([leaders, leader])
        found.append(Place((float(middle[0]), float(middle[1])), leader[[0, -1]] if apart else None))
    return found


def covers(places: Sequence[Place | None], sizes: Points, spot: Points, room: float) -> bool:
    boxes = [
        np.concatenate([np.array(one.middle) - size / 2, np.array(one.middle) + size / 2])
        for one, size in zip(places, sizes, strict=True)
        if one is not None
    ]
    return any(bool(_near(box, spot[None], room).any()) for box in boxes)


def _ring(point: Points, size: Points, distance: float, radius: float) -> list[tuple[float, Points, Points]]:
    """Return (cost, middle of the label, point's rim) of each place on a ring; to the right costs least."""
    angles = np.linspace(0, 2 * np.pi, ANGLES, endpoint=False)
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    middles = point + rays * distance + rays * size / 2
    costs = distance + 0.5 * (1 - rays[:, 0])
    return list(zip(costs, middles, point + rays * radius, strict=True))


def _inside(box: Points, page: tuple[float, float]) -> bool:
    return bool((box[:2] >= MARGIN).all() and (box[2:] <= np.array(page) - MARGIN).all())


def _overlaps(box: Points, boxes: Points) -> bool:
    apart = (box[:2] > boxes[:, 2:] + MARGIN) | (box[2:] < boxes[:, :2] - MARGIN)
    return bool((~apart.any(axis=1)).any())


def _near(box: Points, points: Points, room: float) -> NDArray[np.bool_]:
    gaps = np.maximum(np.maximum(box[:2] - points, points - box[2:]), 0)
    near: NDArray[np.bool_] = np.hypot(gaps[:, 0], gaps[:, 1]) <= room
    return near


def _leader(rim: Points, box: Points) -> Points:
    return samples(np.stack([rim, np.clip(rim, box[:2], box[2:])]))


def _hits(leader: Points, spots: Points, room: float) -> int:
    gaps = leader[:, None] - spots
    return int((np.hypot(gaps[..., 0], gaps[..., 1]) <= room).any(axis=1).sum())


def coordinate(value: float, _: float) -> str:
    return f"{value:g}".replace("-", "−")


def axis_name(name: str) -> str:
    kind, _, number = name.partition(" ")
    return f"{name} ({NORMS[kind]})" if kind in NORMS and number.isdecimal() else name


def dress_axis(
    axis: Axis,
    name: str,
    limits: tuple[float, float],
    *,
    room: float,
    ticks: int = TICKS,
    longest: int = LONGEST,
) -> None:
    """Set an axis' ticks and its name, which says their unit where they would be long.

    The name is shrunk to fit ``room`` points; ``longest`` is how many characters of a tick have room.
    """
    power = _power(limits, longest)
    lines = f"{name}, in 10{str(power).translate(SUPERSCRIPTS)}" if power else name
    widest = style.typeset(max(lines.split("\n"), key=len))
    axis.set_major_locator(MaxNLocator(ticks))
    axis.set_major_formatter(lambda value, _: coordinate(value / 10.0**power, _))
    axis.set_label_text(style.typeset(lines), fontsize=fitting_size(widest, room))


def _power(limits: tuple[float, float], longest: int) -> int:
    # those of the finest ticks, so that drawings of one plane with other numbers of ticks agree
    if all(len(coordinate(tick, 0)) <= longest for tick in MaxNLocator(TICKS).tick_values(*limits)):
        return 0
    return math.floor(math.log10(max(map(abs, limits))))
