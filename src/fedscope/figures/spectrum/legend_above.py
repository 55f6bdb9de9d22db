"""A page of one pair of axes, with a caption and their legend above them."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.figures import style
from fedscope.figures.inch_layout import Page, wrapped

# inches
RIGHT, TOP, BOTTOM = 0.1, 0.06, 0.36
AXES_HEIGHT, LEGEND_LINE = 1.9, 0.112


def page_with_legend(
    draw: Callable[[Axes], None], *, entries: int, caption: str, left: float, width: float
) -> Figure:
    """Draw into the axes of a page, ``left`` inches from its side; the legend has so many ``entries``."""
    with style.paper_style():
        notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
        legend = LEGEND_LINE * (entries + len(notes)) + 0.05
        page = Page(width=width, height=TOP + legend + AXES_HEIGHT + BOTTOM)
        box = page.box(left=left, top=TOP + legend, width=width - left - RIGHT, height=AXES_HEIGHT)
        page.write_notes(notes, top=TOP, step=LEGEND_LINE)
        axes = page.figure.add_axes(box)
        draw(axes)
        # the legend stands above the axes, where no curve can run into it
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1.01), borderaxespad=0, labelspacing=0.25, handlelength=3
        )
    return page.figure
