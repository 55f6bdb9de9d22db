"""Many lines over the rounds: panels side by side of a few lines each, by their last value.

Each panel shows the other lines in grey behind its own, and the first line, the reference, in black.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.inch_layout import Page, wrapped
from fedscope.figures.runs.lines import Line, Panel, draw_panel

PANELS = 3
# inches
LEFT, RIGHT, TOP, BOTTOM, GAP = 0.42, 0.1, 0.06, 0.36, 0.14
HIGH, LEGEND_ROW, TITLE_LINE, SMALL_LINE = 1.9, 0.125, 0.15, 0.115


def grouped_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw the lines in panels, the highest at the end in the first one."""
    if not any(np.isfinite(line.y).any() for line in lines):
        raise UserError("there is no finite value to draw")
    reference, *others = lines
    ranked = sorted(others, key=_end, reverse=True)
    size = -(-len(ranked) // PANELS)
    groups = [ranked[at : at + size] for at in range(0, len(ranked), size)]
    width = style.DOUBLE_COLUMN
    heads = wrapped(title, width=width, size=style.TITLE_SIZE)
    notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
    legend = TOP + TITLE_LINE * len(heads) + SMALL_LINE * len(notes)
    above = legend + LEGEND_ROW * (size + 1) + 0.05
    side = (width - LEFT - RIGHT - GAP * (len(groups) - 1)) / len(groups)
    with style.paper_style():
        page = Page(width=width, height=above + HIGH + BOTTOM)
        page.write_head(heads, notes, top=TOP, title_step=TITLE_LINE, note_step=SMALL_LINE)
        first: Axes | None = None
        for place, group in enumerate(groups):
            left = LEFT + place * (side + GAP)
            box = page.box(left=left, top=above, width=side, height=HIGH)
            axes = page.figure.add_axes(box, sharey=first)
            first = first or axes
            _draw(axes, group, reference, [line for line in others if line not in group], y_label)
            axes.tick_params(labelleft=not place)
            axes.yaxis.label.set_visible(not place)
    return page.figure


def _draw(axes: Axes, own: Sequence[Line], reference: Line, others: Sequence[Line], y_label: str) -> None:
    looks: dict[str, dict[str, Any]] = {reference.label: {"color": style.INK, "linestyle": "--"}}
    looks |= {line.label: style.curve_look(place) for place, line in enumerate(own)}
    behind = {line.label: {"color": "0.87", "linewidth": 0.6} for line in others}
    lines = [*(replace(line, band=None) for line in others), reference, *own]
    draw_panel(axes, Panel(lines, "round", y_label), {**behind, **looks})
    axes.legend(
        [Line2D([], [], **look) for look in looks.values()], [*map(style.typeset, looks)],
        loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0, labelspacing=0.25, handlelength=2.6,
    )  # fmt: skip


def _end(line: Line) -> float:
    known = line.y[np.isfinite(line.y)]
    return float(known[-1]) if len(known) else -np.inf
