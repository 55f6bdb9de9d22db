"""How few samples make λ_max: the curve of concentration, beside it the samples or their classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.inch_layout import POINTS, Page, width_of, wrapped
from fedscope.figures.intervals import reach
from fedscope.figures.label_placement import text_size
from fedscope.figures.text.influence import percent
from fedscope.figures.text.tables import effective_number
from fedscope.records.influence_entry import GroupEntry, Influence
from fedscope.statistics.concentration import LARGEST, cumulative_shares, top_share

MOST_CURVES = 6
MOST_IMAGES = 24
MOST_BARS = 10
SMALLEST_NAME = 4.5  # points

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.5, 0.08, 0.06, 0.34
CURVE_WIDTH, HEIGHT, NAME_AT = 2.25, 1.9, 0.4
GUTTER, IMAGE_GAP, TEXT_LINE = 0.2, 0.06, 0.095
LEGEND_LINE, HEADING = 0.112, 0.16
LONGEST_NAME = 0.8

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
    q = vᵀHᵢv first, on a logarithmic axis; the grey line is that of equal parts. Where some parts are
    negative it rises above 1 before it ends there. A dot stands where the largest 1 % of samples end. On the
    right are the images of the ``first`` checkpoint's largest parts, or where there are none its classes',
    else its clients' shares with 95 % intervals.

    Args:
        curves: the checkpoints.
        first: the samples and groups of the first one.
        images: (K, H, W, C) of its ``largest`` samples, from 0 to 1.
        caption: stands above.
        width: of the whole, in inches; without anything on the right that of a column.
    """
    if not 1 <= len(curves) <= MOST_CURVES:
        raise UserError(f"one figure shows 1 to {MOST_CURVES} checkpoints, not {len(curves)}: make several")
    for curve in curves:
        if not math.fsum(curve.parts) > 0:
            raise UserError(f"λ_max of {curve.label} is not positive, so that its samples have no shares")
    groups = (first.by_class or first.by_client or ()) if first and images is None else ()
    beside = bool(groups) or images is not None
    width = width if beside else style.SINGLE_COLUMN
    across = CURVE_WIDTH - LEFT if beside else width - LEFT - RIGHT
    above = any(max(cumulative_shares(curve.parts)) > 1 for curve in curves)
    caption += f"{'; ' if caption else ''}{ABOVE}" * above
    notes = wrapped(caption, width=width, size=style.SMALL_SIZE)
    top = TOP + LEGEND_LINE * (len(curves) + 1 + len(notes)) + 0.05 + HEADING * beside
    with style.paper_style():
        page = Page(width=width, height=top + HEIGHT + BOTTOM)
        page.write_notes(notes, top=TOP, step=LEGEND_LINE)
        axes = page.figure.add_axes(page.box(left=LEFT, top=top, width=across, height=HEIGHT))
        _draw_curves(axes, curves)
        page.figure.legend(
            *axes.get_legend_handles_labels(), loc="lower left", borderaxespad=0, labelspacing=0.25,
            bbox_to_anchor=(LEFT / width, 1 - (top - HEADING * beside - 0.03) / page.height), handlelength=3,
        )  # fmt: skip
        left = CURVE_WIDTH + GUTTER
        if first and images is not None:
            _draw_images(page, first, images, left=left, top=top, heading=curves[0].label)
        elif groups and first:
            kind = "class" if first.by_class else "client"
            _draw_groups(page, groups, kind, left=left, top=top, heading=curves[0].label)
    return page.figure


def _draw_curves(axes: Axes, curves: Sequence[Concentration]) -> None:
    highest, fewest = 1.0, 1.0
    for index, curve in enumerate(curves):
        number, look = len(curve.parts), style.curve_look(index)
        shares = np.array(cumulative_shares(curve.parts))
        at = np.arange(1, number + 1) / number
        count, share = top_share(curve.parts)
        text = f"{curve.label}: top 1 % carry {percent(share)} %, effective number "
        text += f"{effective_number(curve.effective)} of {number:,}"
        axes.plot(at, shares, label=style.typeset(text), **look)
        axes.plot(count / number, share, marker=style.MARKERS[index], markersize=4, color=look["color"],
                  markeredgecolor="white", markeredgewidth=0.4, linestyle="", zorder=4)  # fmt: skip
        highest, fewest = max(highest, float(shares.max())), min(fewest, 1 / number)
    equal = np.geomspace(fewest, 1, 200)
    axes.plot(equal, equal, color="0.6", linewidth=0.8, zorder=1, label="equal parts of all samples")
    if fewest < LARGEST:
        axes.axvline(LARGEST, color="0.8", linewidth=0.5, linestyle=(0, (2, 2)), zorder=0.5)
    axes.set_xscale("log")
    axes.set(xlim=(fewest / 1.15, 1.1), ylim=(0, 1.05 * highest))
    axes.set(xlabel="share of samples, largest parts first", ylabel=style.typeset("share of λ_max"))
    ticks = [10.0**e for e in range(math.floor(math.log10(fewest)), 1) if 10.0**e >= fewest / 1.15]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.yaxis.set_label_coords(-NAME_AT / width_of(axes) * POINTS, 0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_images(
    page: Page, first: Influence, images: Images, *, left: float, top: float, heading: str
) -> None:
    shown = min(len(images), len(first.largest), MOST_IMAGES)
    room = page.width - left - RIGHT
    columns, side = _grid(shown, room, HEIGHT + BOTTOM - TOP)
    names = {group.number: group.name for group in first.by_class or ()}
    _write_heading(page, f"samples that carry most: {heading}", left=left, room=room, top=top)
    across = columns * side + (columns - 1) * IMAGE_GAP
    for place, (one, image) in enumerate(zip(first.largest[:shown], images, strict=False)):
        row, column = divmod(place, columns)
        at = left + (room - across) / 2 + column * (side + IMAGE_GAP)
        above = top + row * (side + 2 * TEXT_LINE + IMAGE_GAP)
        axes = page.figure.add_axes(page.box(left=at, top=above, width=side, height=side))
        axes.imshow(image[..., 0] if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=1,
                    interpolation="nearest")  # fmt: skip
        axes.set_axis_off()
        name = "" if one.label is None else names.get(one.label) or f"class {one.label}"
        for line, text in enumerate(filter(None, (name.replace("_", " "), f"{percent(one.share)} %"))):
            _write_below(page, text, center=at + side / 2, top=above + side + 0.02 + line * TEXT_LINE,
                         room=side + 0.6 * IMAGE_GAP)  # fmt: skip


def _grid(count: int, width: float, height: float) -> tuple[int, float]:
    """Return the columns of a grid of squares with two lines of text each, and their side: the largest."""

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
    wide = text_size(style.typeset(text), size)[0]
    fits = wide <= room * POINTS * 1.001
    return text if fits else text[: max(1, int(len(text) * room * POINTS / wide) - 1)] + "…"


def _draw_groups(
    page: Page, groups: Sequence[GroupEntry], kind: str, *, left: float, top: float, heading: str
) -> None:
    shown = groups[:MOST_BARS]
    names = [(one.name or str(one.number)).replace("_", " ") for one in shown]
    names = [style.typeset(_cut(name, LONGEST_NAME, style.SMALL_SIZE)) for name in names]
    longest = max(text_size(name, style.SMALL_SIZE)[0] for name in names) / POINTS
    start = left + min(longest, LONGEST_NAME) + 0.16
    room = page.width - start - RIGHT
    of = f"{len(shown)} largest of {len(groups)}" if len(groups) > len(shown) else "all"
    plural = {"class": "classes", "client": "clients"}[kind]
    _write_heading(page, f"{plural} of {heading} ({of})", left=left, room=page.width - left - RIGHT, top=top)
    axes = page.figure.add_axes(page.box(left=start, top=top, width=room, height=HEIGHT))
    at = np.arange(len(shown))
    shares = np.array([one.share for one in shown])
    errors = np.array([reach(one.stderr) for one in shown])
    axes.barh(at, shares, height=0.72, color=style.method_colors(1)[0], alpha=0.75, linewidth=0)
    axes.errorbar(shares, at, xerr=errors, fmt="none", ecolor=style.INK, elinewidth=0.7, capsize=2)
    axes.axvline(0, color=style.INK, linewidth=0.5)
    axes.set_yticks(at, names)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.set(xlabel=style.typeset(f"share of λ_max by {kind}, 95 % intervals"))
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _write_heading(page: Page, text: str, *, left: float, room: float, top: float) -> None:
    (line, *_) = wrapped(text, width=room, size=style.SMALL_SIZE)
    page.write(line, center=left + room / 2, top=top - HEADING + 0.01, fontsize=style.SMALL_SIZE,
               color=style.FAINT_INK)  # fmt: skip
