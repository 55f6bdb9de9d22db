"""Small panels in rows, a name and a line of text above each, and a legend below all."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedscope.figures import style
from fedscope.figures.inch_layout import POINTS, Page
from fedscope.figures.label_placement import text_size

COLUMNS = 3  # panels of a row

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.46, 0.08, 0.06, 0.24
HIGH, LINE, HEAD, BETWEEN, ASIDE = 1.25, 0.13, 0.3, 0.2, 0.14

Drawn = Callable[[Axes, int], None]
"""(axes, which panel) ↦ nothing: draws it."""


def small_panels(
    titles: Sequence[str],
    draw: Drawn,
    *,
    heads: Sequence[str] = (),
    x_label: str = "",
    y_label: str = "",
    left: float = LEFT,
    high: float = HIGH,
    keys: Sequence[Line2D] = (),
    shared: bool = False,
    caption: str = "",
) -> Figure:
    """Draw a panel for each title, three in a row.

    Args:
        titles: above the panels, for matplotlib.
        draw: draws one.
        heads: a fainter line below each title; none without them.
        x_label: of every panel.
        y_label: of every panel; with ``shared`` of the first in each row.
        left: room for what stands left of a row [inch].
        high: of a panel [inch].
        keys: entries of the legend.
        shared: the panels of a row have one axis of values, labelled at the first.
        caption: a line below all.
    """
    columns = min(COLUMNS, len(titles))
    width = (style.SINGLE_COLUMN, style.WIDE_COLUMN, style.DOUBLE_COLUMN)[columns - 1]
    head = HEAD if heads else HEAD - LINE
    aside = ASIDE if shared or left != LEFT else LEFT
    side = (width - left - RIGHT - aside * (columns - 1)) / columns
    step = head + high + BETWEEN + (LINE if x_label else 0.0)
    with style.paper_style():
        legend = _legend_rows(keys, width)
        below = LINE * (legend + bool(caption))
        height = TOP - (-len(titles) // columns) * step + BOTTOM - BETWEEN + below
        page = Page(width=width, height=height)
        for i, title in enumerate(titles):
            row, column = divmod(i, columns)
            x, top = left + column * (side + aside), TOP + row * step
            axes = page.figure.add_axes(page.box(left=x, top=top + head, width=side, height=high))
            draw(axes, i)
            _write(page, title, heads[i] if heads else "", center=x + side / 2, top=top + 0.02)
            axes.set_xlabel(x_label)
            if column and shared:
                axes.tick_params(labelleft=False)
            elif y_label:
                axes.set_ylabel(style.typeset(y_label))
        if caption:
            _note(page, caption, center=width / 2, top=height - LINE)
        if keys:
            _draw_legend(page, keys, bottom=LINE * bool(caption) / height)
    return page.figure


def _write(page: Page, title: str, head: str, *, center: float, top: float) -> None:
    page.write(title, center=center, top=top, fontsize=style.TEXT_SIZE)
    if head:
        _note(page, head, center=center, top=top + LINE)


def _note(page: Page, text: str, *, center: float, top: float) -> None:
    page.write(text, center=center, top=top, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)


def _legend_columns(keys: Sequence[Line2D], width: float) -> int:
    widest = max(text_size(str(key.get_label()), style.SMALL_SIZE)[0] for key in keys) / POINTS + 0.25
    return max(1, min(len(keys), int(width / widest)))


def _legend_rows(keys: Sequence[Line2D], width: float) -> int:
    return -(-len(keys) // _legend_columns(keys, width)) if keys else 0


def _draw_legend(page: Page, keys: Sequence[Line2D], *, bottom: float) -> None:
    page.figure.legend(
        handles=list(keys), ncols=_legend_columns(keys, page.width), loc="lower center", handletextpad=0.2,
        columnspacing=1.0, labelspacing=0.2, borderpad=0.1, bbox_to_anchor=(0.5, bottom),
    )  # fmt: skip
