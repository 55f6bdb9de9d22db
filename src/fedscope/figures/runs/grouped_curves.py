"""Many lines over the rounds: panels side by side of a few lines each, by their last value.

Each panel shows the other lines in grey behind its own, and the first line, the reference, in black.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.inch_layout import Page, wrapped
from fedscope.figures.runs.line import Line

PANELS = 3
# inches
LEFT, RIGHT, TOP, BOTTOM, GAP = 0.42, 0.1, 0.06, 0.36, 0.14
HIGH, LEGEND_ROW, TITLE_LINE, SMALL_LINE = 1.9, 0.125, 0.15, 0.115


def grouped_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw the lines in panels, the highest at the end in the first one.

    Raises:
        UserError: there is no finite value.
    """
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
            _draw(axes, group, reference, [line for line in others if line not in group])
            axes.set_xlabel("round")
            axes.tick_params(labelleft=not place)
        first.set_ylabel(style.typeset(y_label)) if first else None
    return page.figure


def _draw(axes: Axes, own: Sequence[Line], reference: Line, others: Sequence[Line]) -> None:
    for line in others:
        axes.plot(line.x, line.y, color="0.87", linewidth=0.6, zorder=1)
    looks: list[tuple[Line, dict[str, Any]]] = [(reference, {"color": style.INK, "linestyle": "--"})]
    looks += [(line, style.curve_look(place)) for place, line in enumerate(own)]
    for line, look in looks:
        axes.plot(line.x, line.y, zorder=3, **look)
        if line.band is not None:
            axes.fill_between(
                line.x, line.y - line.band, line.y + line.band, color=look["color"], alpha=0.2, linewidth=0
            )
    axes.legend(
        [Line2D([], [], **look) for _, look in looks], [style.typeset(line.label) for line, _ in looks],
        loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0, labelspacing=0.25, handlelength=2.6,
    )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(axis="y")
    axes.spines[["top", "right"]].set_visible(False)


def _end(line: Line) -> float:
    """Return the last finite value."""
    known = line.y[np.isfinite(line.y)]
    return float(known[-1]) if len(known) else -np.inf
