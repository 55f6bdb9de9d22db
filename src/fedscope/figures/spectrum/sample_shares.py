"""How few samples make λ_max: the curve of concentration, beside it the samples or their classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.label_placement import POINTS, text_size
from fedscope.figures.page import BOTTOM, HIGH, RIGHT, SMALL_LINE, TOP, Page, panels_figure, wrapped
from fedscope.figures.panels import Bars, Dots, Line, Panel, Part, RuledLine, Ticks, reach, rows_of
from fedscope.figures.text.hessian_table import effective_number
from fedscope.figures.text.influence_tables import percent
from fedscope.records.influence_entry import GroupEntry, Influence
from fedscope.statistics.concentration import LARGEST, cumulative_shares, top_share

MOST_CURVES = 6
MOST_IMAGES = 24
MOST_BARS = 10
SMALLEST_NAME = 4.5  # points

# inches
LEFT, CURVE_WIDTH, GUTTER, IMAGE_GAP, TEXT_LINE, LONGEST_NAME = 0.5, 2.25, 0.2, 0.06, 0.095, 0.8

Images = NDArray[np.floating[Any]]  # (K, H, W, C) from 0 to 1, C = 1 or 3


ABOVE = "above 100 %: samples whose part is negative take off the rest"


@dataclass(frozen=True)
class Concentration:
    """The samples' parts of one checkpoint's λ_max."""

    label: str
    parts: Sequence[float]  # (N,)
    effective: float  # number of samples


def influence_figure(
    curves: Sequence[Concentration],
    *,
    first: Influence | None = None,
    images: Images | None = None,
    caption: str = "",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw which share of λ_max the samples of the largest parts carry, and beside it these samples.

    The curve of a checkpoint is the share of its λ_max against the share of samples, those with the largest
    q = vᵀHᵢv first; the grey line is that of equal parts. Where some parts are negative it rises above 1
    before it ends there. A dot stands where the largest 1 % of samples end. On the right are ``images``
    (K, H, W, C), from 0 to 1, of the ``first`` checkpoint's largest parts, or its classes' or its clients'
    shares.
    """
    if not 1 <= len(curves) <= MOST_CURVES:
        raise UserError(f"one figure shows 1 to {MOST_CURVES} checkpoints, not {len(curves)}: make several")
    for curve in curves:
        if not math.fsum(curve.parts) > 0:
            raise UserError(f"λ_max of {curve.label} is not positive, so that its samples have no shares")
    groups = (first.by_class or first.by_client or ()) if first and images is None else ()
    beside = [Panel([], grid="")] if images is not None else []
    if groups and first:
        beside = [_groups(groups, "class" if first.by_class else "client", curves[0].label)]
    above = any(max(cumulative_shares(curve.parts)) > 1 for curve in curves)
    caption += f"{'; ' if caption else ''}{ABOVE}" * above
    figure = panels_figure(
        [_shares(curves), *beside], columns=1 + len(beside), shared=False, keys=1, left=LEFT, caption=caption,
        width=width if beside else style.SINGLE_COLUMN,
    )  # fmt: skip
    if first and images is not None:
        with style.paper_style():
            _draw_images(figure, first, images, heading=curves[0].label)
    return figure


def _shares(curves: Sequence[Concentration]) -> Panel:
    highest, fewest = 1.0, 1.0
    parts: list[Part] = []
    for index, curve in enumerate(curves):
        number, look = len(curve.parts), style.curve_look(index)
        shares = np.array(cumulative_shares(curve.parts))
        count, share = top_share(curve.parts)
        text = f"{curve.label}: top 1 % carry {percent(share)} %, effective number "
        text += f"{effective_number(curve.effective)} of {number:,}"
        parts.append(Line(text, np.arange(1, number + 1) / number, shares, marker="", look=look))
        dot: dict[str, Any] = {"marker": style.MARKERS[index], "size": 4.0, "color": look["color"]}
        parts.append(Dots(np.array([count / number]), np.array([share]), **dot))
        highest, fewest = max(highest, float(shares.max())), min(fewest, 1 / number)
    equal = np.geomspace(fewest, 1, 200)
    grey = {"color": "0.6", "linewidth": 0.8, "zorder": 1}
    parts.append(Line("equal parts of all samples", equal, equal, marker="", look=grey))
    if fewest < LARGEST:
        dashed = {"color": "0.8", "linewidth": 0.5, "linestyle": (0, (2, 2)), "zorder": 0.5}
        parts.append(RuledLine(LARGEST, upright=True, look=dashed))
    return Panel(
        parts, "share of samples, largest parts first", "share of λ_max", grid="",
        x=Ticks(scale="log", percent=True, limits=(fewest / 1.15, 1.1)),
        y=Ticks(5, percent=True, limits=(0, 1.05 * highest)),
    )  # fmt: skip


def _groups(groups: Sequence[GroupEntry], kind: str, heading: str) -> Panel:
    shown = groups[:MOST_BARS]
    names = [(one.name or str(one.number)).replace("_", " ") for one in shown]
    of = f"{len(shown)} largest of {len(groups)}" if len(groups) > len(shown) else "all"
    plural = {"class": "classes", "client": "clients"}[kind]
    places, rows = rows_of([_cut(name, LONGEST_NAME, style.SMALL_SIZE) for name in names])
    shares, errors = np.array([(one.share, reach(one.stderr)) for one in shown]).T
    parts: list[Part] = [Bars(places, shares, errors, lying=True), RuledLine(0.0, upright=True)]
    label = f"share of λ_max by {kind}, 95 % intervals"
    head = f"{plural} of {heading} ({of})"
    return Panel(parts, label, head=head, x=Ticks(4, percent=True), y=rows, grid="")


def _draw_images(figure: Figure, first: Influence, images: Images, *, heading: str) -> None:
    page = Page.of(figure)
    left, top = CURVE_WIDTH + GUTTER, page.height * (1 - figure.axes[1].get_position().y1)
    figure.axes[1].remove()
    shown = min(len(images), len(first.largest), MOST_IMAGES)
    room = page.width - left - RIGHT
    columns, side = _grid(shown, room, HIGH + BOTTOM - TOP)
    names = {group.number: group.name for group in first.by_class or ()}
    (above, *_) = wrapped(f"samples that carry most: {heading}", width=room, size=style.SMALL_SIZE)
    page.write_note(above, center=left + room / 2, top=top - SMALL_LINE - 0.03)
    across = columns * side + (columns - 1) * IMAGE_GAP
    for place, (one, image) in enumerate(zip(first.largest[:shown], images, strict=False)):
        row, column = divmod(place, columns)
        at = left + (room - across) / 2 + column * (side + IMAGE_GAP)
        high = top + row * (side + 2 * TEXT_LINE + IMAGE_GAP)
        axes = page.figure.add_axes(page.box(left=at, top=high, width=side, height=side))
        axes.imshow(image[..., 0] if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=1,
                    interpolation="nearest")  # fmt: skip
        axes.set_axis_off()
        name = "" if one.label is None else names.get(one.label) or f"class {one.label}"
        for line, text in enumerate(filter(None, (name.replace("_", " "), f"{percent(one.share)} %"))):
            _write_below(page, text, center=at + side / 2, top=high + side + 0.02 + line * TEXT_LINE,
                         room=side + 0.6 * IMAGE_GAP)  # fmt: skip


def _grid(count: int, width: float, height: float) -> tuple[int, float]:
    def side(columns: int) -> float:
        rows = -(-count // columns)
        across = (width - (columns - 1) * IMAGE_GAP) / columns
        return min(across, (height - (rows - 1) * IMAGE_GAP) / rows - 2 * TEXT_LINE)

    best = max(range(1, count + 1), key=lambda columns: (side(columns), -columns))
    return best, side(best)


def _write_below(page: Page, text: str, *, center: float, top: float, room: float) -> None:
    size = style.SMALL_SIZE * min(1.0, room * POINTS / text_size(style.typeset(text), style.SMALL_SIZE)[0])
    size = max(size, SMALLEST_NAME)
    page.write(style.typeset(_cut(text, room, size)), center=center, top=top, fontsize=size)


def _cut(text: str, room: float, size: float) -> str:
    shown = text
    while len(text) > 1 and text_size(style.typeset(shown), size)[0] > room * POINTS * 1.001:
        text = text[:-1]
        shown = f"{text}…"
    return shown
