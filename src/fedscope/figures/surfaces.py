"""Loss landscapes of several checkpoints side by side: surfaces in space above, contours below.

Everything that a reader compares is shared: the axes' limits, the camera, the heights, and one colour
scale. What is cut off or missing is said in the figure.
"""

from collections.abc import Sequence

from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.loss_scale import LossScale, format_loss, shared_scale
from fedscope.figures.page import Page
from fedscope.figures.panels import Panel, draw_contours, draw_surface, make_panel, shared_limits
from fedscope.landscape.results import Surface

MOST_CHECKPOINTS = 6

# inches
LEFT, RIGHT, TOP = 0.4, 0.12, 0.06
GAP = 0.2  # least distance of neighbouring panels
TWO_BANDS_SIDE = 1.75  # so that two bands fit a page
TITLE_LINE, DETAIL_LINE = 0.14, 0.115
SPACE = 1.0  # height of the surfaces, in panel widths
SPACE_LABELS = 0.08  # room for their lowest labels
X_LABELS = 0.42  # under the contours
BAR, BAR_LABELS = 0.07, 0.34


def landscape_figure(
    surfaces: Sequence[Surface], titles: Sequence[str], *, captions: Sequence[str] | None = None
) -> Figure:
    """Draw one column per checkpoint (two bands of three columns from five on), with everything shared.

    The loss at the centre stands under each title; ``captions`` adds a line there.

    Raises:
        UserError: for no or more than six surfaces, a grid too small to draw, or no finite loss at all.
        ValueError: when the numbers of surfaces, titles and captions differ.
    """
    if not 1 <= len(surfaces) <= MOST_CHECKPOINTS:
        raise UserError(
            f"one figure shows 1 to {MOST_CHECKPOINTS} checkpoints, not {len(surfaces)}: make several figures"
        )
    columns = len(surfaces) if len(surfaces) <= 4 else 3
    width = {1: style.SINGLE_COLUMN, 2: style.WIDE_COLUMN}.get(columns, style.DOUBLE_COLUMN)
    side = (width - LEFT - RIGHT - (columns - 1) * GAP) / columns
    if len(surfaces) > columns:
        side = min(side, TWO_BANDS_SIDE)
    captions = captions if captions is not None else [""] * len(surfaces)
    panels = [
        make_panel(surface, title, caption, width=side)
        for surface, title, caption in zip(surfaces, titles, captions, strict=True)
    ]
    scale = shared_scale([panel.loss for panel in panels])
    with style.paper_style():
        return _draw(panels, scale, columns=columns, width=width, side=side)


def _draw(panels: Sequence[Panel], scale: LossScale, *, columns: int, width: float, side: float) -> Figure:
    header = max(TITLE_LINE * len(panel.title) + DETAIL_LINE * len(panel.details) for panel in panels)
    band = header + (SPACE + 1) * side + SPACE_LABELS + X_LABELS
    bar_top = TOP + -(-len(panels) // columns) * band
    page = Page(width=width, height=bar_top + BAR + BAR_LABELS + DETAIL_LINE * scale.clipped)
    limits = shared_limits(panels)
    step = (width - LEFT - RIGHT - side) / max(columns - 1, 1)
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        left, top = LEFT + column * step, TOP + row * band
        _write_header(page, panel, center=left + side / 2, top=top)
        top += header
        box = page.box(left=left - 0.07 * side, top=top - 0.045 * side, width=side, height=SPACE * side)
        space = Axes3D(page.figure, box)
        page.figure.add_axes(space)
        draw_surface(space, panel, scale, limits)
        top += SPACE * side + SPACE_LABELS
        box = page.box(left=left, top=top, width=side, height=side)
        draw_contours(page.figure.add_axes(box), panel, scale, limits, leftmost=column == 0)
    _draw_bar(page, scale, top=bar_top)
    return page.figure


def _write_header(page: Page, panel: Panel, *, center: float, top: float) -> None:
    for line in panel.title:
        page.write(line, center=center, top=top, fontsize=style.TITLE_SIZE, fontweight="bold")
        top += TITLE_LINE
    for line in panel.details:
        page.write(line, center=center, top=top, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)
        top += DETAIL_LINE


def _draw_bar(page: Page, scale: LossScale, *, top: float) -> None:
    length = min(0.72 * page.width, 3.6)
    left = (page.width - length) / 2
    bar = page.figure.colorbar(
        ScalarMappable(scale.norm(), style.loss_colormap()),
        cax=page.figure.add_axes(page.box(left=left, top=top, width=length, height=BAR)),
        orientation="horizontal",
        extend="max" if scale.clipped else "neither",
        ticks=scale.ticks(),
        format=lambda loss, _: format_loss(loss),
    )
    bar.set_label(scale.label())
    bar.minorticks_off()
    bar.outline.set_linewidth(0.4)
    if scale.clipped:
        page.write(
            f"Surfaces and colours are cut at {format_loss(scale.high, digits=2)}; "
            f"the highest loss is {format_loss(scale.highest, digits=2)}.",
            center=page.width / 2,
            top=top + BAR + BAR_LABELS - 0.02,
            fontsize=style.SMALL_SIZE,
            color=style.FAINT_INK,
        )
