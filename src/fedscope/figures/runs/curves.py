"""Lines over a shared axis: accuracy by round, eigenvalues by rank, accuracy by a method's strength."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.inch_layout import Page, wrapped
from fedscope.figures.runs.grouped_curves import grouped_figure
from fedscope.figures.runs.lines import Line, Panel, draw_panel, looks_of

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.42, 0.1, 0.06, 0.36
AXES_HEIGHT, LOW_HEIGHT, GAP = 1.9, 1.0, 0.12
LEGEND_ROW, TITLE_LINE, SMALL_LINE = 0.125, 0.15, 0.115
MOST_COLUMNS = 4  # of the legend's names above panels side by side
MOST_LINES = 12  # of one length that one pair of axes shows


def rounds_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw lines over the rounds that all share, and beside them whole those that are longer.

    More of one length than a pair of axes can show are drawn in groups.
    """
    ends = {line.label: line.x[-1] for line in lines if len(line.x)}  # a line may have no value at all
    shared = min(ends.values(), default=0.0)
    longer = [line for line in lines if ends.get(line.label, 0.0) > shared]
    if not longer and len(lines) > MOST_LINES:
        return grouped_figure(lines, y_label=y_label, title=title, caption=caption)
    if not longer:
        return panels_figure([Panel(lines, "round", y_label)], title=title, caption=caption)
    cut = [line.where(line.x <= shared) for line in lines]
    panels = [
        Panel(cut, "round", y_label, f"all, to round {shared:.0f}"),
        Panel(longer, "round", y_label, f"those trained to round {max(ends.values()):.0f}"),
    ]
    return panels_figure(panels, beside=True, title=title, caption=caption, width=style.WIDE_COLUMN)


def panels_figure(
    panels: Sequence[Panel],
    *,
    beside: bool = False,
    title: str = "",
    caption: str = "",
    x_scale: Literal["linear", "log"] = "linear",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw lines in colours and styles that are told apart in print and by colour-blind readers.

    A line has one look in all panels. These stand below each other on one x axis, or ``beside`` each other on
    one y axis. The legend stands above. Points that are not finite leave a gap. ``width`` is in inches.
    """
    if not all(any(np.isfinite(line.y).any() for line in panel.lines) for panel in panels):
        raise UserError("there is no finite value to draw")
    named = {line.label: line for panel in panels for line in panel.lines}
    looks = dict(zip(named, looks_of([*named.values()]), strict=True))
    columns = MOST_COLUMNS if beside else 2
    titles = TITLE_LINE * any(panel.title for panel in panels)
    heads = wrapped(title, width=width, size=style.TITLE_SIZE)
    notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
    above = TOP + TITLE_LINE * len(heads) + SMALL_LINE * len(notes)
    above += LEGEND_ROW * -(-len(named) // columns) + 0.05 + titles
    with style.paper_style():
        heights = [AXES_HEIGHT] if beside else [AXES_HEIGHT, *[LOW_HEIGHT] * (len(panels) - 1)]
        page = Page(width=width, height=above + sum(heights) + GAP * (len(heights) - 1) + BOTTOM)
        page.write_head(heads, notes, top=TOP, title_step=TITLE_LINE, note_step=SMALL_LINE)
        side = width - LEFT - RIGHT
        if beside:
            side = (side - GAP * (len(panels) - 1)) / len(panels)
        axes: list[Axes] = []
        for place, panel in enumerate(panels):
            left = LEFT + beside * place * (side + GAP)
            top = above if beside else above + sum(heights[:place]) + GAP * place
            height = AXES_HEIGHT if beside else heights[place]
            box = page.box(left=left, top=top, width=side, height=height)
            first = axes[0] if axes else None
            axes.append(
                page.figure.add_axes(box, sharey=first) if beside else page.figure.add_axes(box, sharex=first)
            )
            draw_panel(axes[-1], panel, looks, x_scale)
            axes[-1].tick_params(labelleft=not beside or not place, labelbottom=beside or panel is panels[-1])
            axes[-1].xaxis.label.set_visible(beside or panel is panels[-1])
            axes[-1].yaxis.label.set_visible(not beside or not place)
            axes[-1].yaxis.set_label_coords(-0.66 * LEFT / side, 0.5)
        _draw_legend(axes[0], named, looks, columns, up=(0.03 + titles) / heights[0])
    return page.figure


def _draw_legend(
    axes: Axes, lines: Mapping[str, Line], looks: Mapping[str, dict[str, Any]], columns: int, *, up: float
) -> None:
    names = [*lines]
    order = [name for first in range(columns) for name in names[first::columns]]  # filled column by column
    axes.legend(
        [Line2D([], [], **looks[name]) for name in order], [style.typeset(name) for name in order],
        loc="lower left", bbox_to_anchor=(0, 1 + up), borderaxespad=0, labelspacing=0.25, handlelength=2.6,
        ncols=columns, columnspacing=1.2,
    )  # fmt: skip
