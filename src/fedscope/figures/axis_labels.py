"""The ticks of an axis of coordinates, and its name, which takes over the power of ten of long ticks."""

import math

from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from fedscope.figures import style
from fedscope.figures.digits import SUPERSCRIPTS
from fedscope.figures.label_placement import fitting_size

NORMS = {"eigenvector": "unit norm", "random": "filter-normalised"}  # of directions, by their names' kind
TICKS = 4  # intervals between them at most
LONGEST = 5  # characters of a tick that have room beside an axis


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
