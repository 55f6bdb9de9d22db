"""Numbers of several methods as dots with their errors: a row for each method, a panel for each quantity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import POINTS
from fedscope.figures.label_placement import text_size
from fedscope.figures.runs.small_panels import COLUMNS, small_panels

ROW, LEAST_HIGH = 0.15, 0.5  # inches: of a method, and of a panel
ASIDE = 0.22  # of a method's row, between the quantities of one panel


@dataclass(frozen=True)
class Dots:
    """A quantity: its title, and each method's value and half of its 95 % interval (None: not known)."""

    title: str
    values: Mapping[str, tuple[float, float | None]]


def dots_figure(panels: Sequence[Sequence[Dots]], methods: Sequence[str], *, caption: str = "") -> Figure:
    """Draw each panel's quantities side by side with 95 % intervals, the first one as its title."""
    if not panels or not methods:
        raise UserError("there is no number to draw")
    with style.paper_style():
        room = max(text_size(method, style.SMALL_SIZE)[0] for method in methods) / POINTS + 0.12

    def draw(axes: Axes, index: int) -> None:
        _panel(axes, panels[index], methods, named=index % COLUMNS == 0)

    several = max(map(len, panels))
    keys = [_key(index, panels) for index in range(several)] if several > 1 else []
    return small_panels(
        [style.typeset(panel[0].title) for panel in panels],
        draw, left=room, high=max(LEAST_HIGH, ROW * len(methods)), keys=keys, caption=caption,
    )  # fmt: skip


def _panel(axes: Axes, series: Sequence[Dots], methods: Sequence[str], *, named: bool) -> None:
    places = np.arange(len(methods))[::-1]
    for index, one in enumerate(series):
        beside = (index - (len(series) - 1) / 2) * -ASIDE
        for place, method in zip(places, methods, strict=True):
            if method in one.values:
                value, half = one.values[method]
                axes.errorbar(
                    value, place + beside, xerr=half, elinewidth=0.8,
                    markersize=3, linestyle="", **_look(index),
                )  # fmt: skip
    low, high = axes.get_xlim()
    if low < 0 < high:
        axes.axvline(0, color="0.5", linewidth=0.5)
    axes.set_ylim(-0.6, len(methods) - 0.4)
    axes.set_yticks(places, list(methods) if named else [""] * len(methods))
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value)))
    axes.margins(x=0.1)
    style.draw_grid(axes)


def _look(index: int) -> dict[str, Any]:
    return {"marker": style.MARKERS[index], "color": style.method_colors(3)[index]}


def _key(index: int, panels: Sequence[Sequence[Dots]]) -> Line2D:
    titles = dict.fromkeys(panel[index].title for panel in panels if len(panel) > max(1, index))
    return Line2D([], [], linestyle="", markersize=3, label=style.typeset(" / ".join(titles)), **_look(index))
