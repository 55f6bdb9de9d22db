"""Landscapes of several checkpoints side by side: surfaces in space, contours, heat maps.

The axes' limits, the camera, the heights and the colour scale are shared.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d import Axes3D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import Scale, shared_scale
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.figures.page import Page, wrapped
from fedscope.figures.surface.drawn_planes import (
    Limits,
    SurfacePlane,
    draw_contours,
    draw_heat,
    fill_at,
    interpolated,
    make_plane,
    shared_limits,
)
from fedscope.figures.surface.marks import draw_distances, draw_marks, has_distances
from fedscope.figures.surface.surface3d import draw_surface

if TYPE_CHECKING:
    from fedscope.figures.surface.drawn_planes import Surface

MOST_CHECKPOINTS = 8
FLAT = {"both": draw_contours, "contour": draw_contours, "heat": draw_heat}

# inches
LEFT, RIGHT, TOP = 0.4, 0.12, 0.06
GAP = 0.2  # least distance of neighbouring panels
TWO_BANDS_SIDE = 1.75  # so that two bands fit a page
TITLE_LINE, DETAIL_LINE, UNDER_HEADER = 0.14, 0.115, 0.03
SPACE = 1.0  # height of the surfaces, in panel widths
SPACE_LABELS = 0.13  # room for their lowest labels
X_LABELS = 0.42  # under the contours
DISTANCES, DISTANCE_LABELS = 0.42, 0.34
BAR, BAR_LABELS = 0.07, 0.34

SHARES = (0.3, 1.6)  # a plane's height in its widths
COARSE = 25  # points along an axis up to which interpolated contours are said to be so


def landscape_figure(
    surfaces: "Sequence[Surface]",
    titles: Sequence[str] | None = None,
    *,
    captions: Sequence[str] | None = None,
    kind: SurfaceKind = "both",
    metric: str = "loss",
    scale: Scale | None = None,
    columns: int | None = None,
    title: str = "",
    reached: int | None = None,
) -> Figure:
    """Draw one column per checkpoint (two bands of three or four columns from five on), with all shared.

    ``both`` has surfaces in space above contours. The loss at the centre stands under each title (left out:
    the name of the directions); ``captions`` adds a line there. Known networks are marked on the plane, and
    where they lie off it a panel below shows their distances. ``metric`` is "loss" or one of the surfaces'
    metrics. ``scale`` is found from the surfaces unless given, and so is the number of ``columns``;
    ``title`` stands above all. Of a path only as many marks as are ``reached`` are drawn.

    Raises:
        UserError: for no or more than eight surfaces (any number in given ``columns``), a grid too small to
            draw, a metric that was not computed, or no finite value at all.
        ValueError: when the numbers of surfaces, titles and captions differ.
    """
    if not surfaces or (columns is None and len(surfaces) > MOST_CHECKPOINTS):
        raise UserError(
            f"one figure shows 1 to {MOST_CHECKPOINTS} checkpoints, not {len(surfaces)}: make several figures"
        )
    columns = columns or (len(surfaces) if len(surfaces) <= 4 else 3 if len(surfaces) <= 6 else 4)
    width = {1: style.SINGLE_COLUMN, 2: style.WIDE_COLUMN}.get(columns, style.DOUBLE_COLUMN)
    side = (width - LEFT - RIGHT - (columns - 1) * GAP) / columns
    if len(surfaces) > columns:
        side = min(side, TWO_BANDS_SIDE)
    titles = titles or [surface.directions for surface in surfaces]
    captions = captions if captions is not None else [""] * len(surfaces)
    panels = [
        make_plane(surface, title, caption, width=side, metric=metric)
        for surface, title, caption in zip(surfaces, titles, captions, strict=True)
    ]
    scale = scale or shared_scale([panel.values for panel in panels], metric)
    with style.paper_style():
        layout = _Layout(panels, scale, kind, columns=columns, width=width, side=side, title=title)
        return layout.draw(reached)


class _Layout:
    """Bands of panels on a page; lengths are in inches."""

    def __init__(
        self,
        panels: Sequence[SurfacePlane],
        scale: Scale,
        kind: SurfaceKind,
        *,
        columns: int,
        width: float,
        side: float,
        title: str,
    ) -> None:
        self.title = wrapped(title, width=width, size=style.TITLE_SIZE)
        self.top = TOP + (TITLE_LINE + UNDER_HEADER) * len(self.title)
        self.panels, self.scale, self.kind, self.columns, self.side = panels, scale, kind, columns, side
        self.header = UNDER_HEADER + max(
            TITLE_LINE * len(panel.title) + DETAIL_LINE * len(panel.details) for panel in panels
        )
        self.limits: Limits = shared_limits(panels)
        self.high = side * _share(panels, self.limits)
        self.notes = _notes(panels, scale, kind)
        self.farthest = max(
            (mark.distance for p in panels if has_distances(p.marks) for mark in p.marks), default=0.0
        )
        space = SPACE * side + SPACE_LABELS if kind in ("both", "surface") else 0.0
        flat = self.high + X_LABELS if kind in FLAT else 0.0
        distances = DISTANCES + DISTANCE_LABELS if kind in FLAT and self.farthest else 0.0
        self.band = self.header + space + flat + distances
        self.bar_top = self.top + -(-len(panels) // columns) * self.band
        height = self.bar_top + BAR + BAR_LABELS + DETAIL_LINE * len(self.notes)
        self.page = Page(width=width, height=height)
        self.step = (width - LEFT - RIGHT - side) / max(columns - 1, 1)
        if columns > 1 and columns * (side + GAP) < 0.9 * (width - LEFT - RIGHT):
            self.step = side + 2 * GAP

    def draw(self, reached: int | None) -> Figure:
        for index, line in enumerate(self.title):
            top = TOP + index * TITLE_LINE
            self.page.write(line, center=self.page.width / 2, top=top, fontsize=style.TITLE_SIZE)
        for index, panel in enumerate(self.panels):
            row, column = divmod(index, self.columns)
            left, top = self._first(row) + column * self.step, self.top + row * self.band
            first_name = self.panels[row * self.columns].names[1]
            self._draw_column(
                panel,
                reached,
                left=left,
                top=top,
                leftmost=column == 0,
                named=column == 0 or panel.names[1] != first_name,
            )
        _draw_bar(self.page, self.scale, top=self.bar_top)
        self.page.write_notes(self.notes, top=self.bar_top + BAR + BAR_LABELS - 0.02)
        return self.page.figure

    def _first(self, row: int) -> float:
        """Return where a band's first column begins: the last may have fewer, and every one is centred."""
        count = min(self.columns, len(self.panels) - row * self.columns)
        return (self.page.width - LEFT - RIGHT - (count - 1) * self.step - self.side) / 2 + LEFT

    def _draw_column(
        self,
        panel: SurfacePlane,
        reached: int | None,
        *,
        left: float,
        top: float,
        leftmost: bool,
        named: bool,
    ) -> None:
        page, side = self.page, self.side
        _write_header(page, panel, center=left + side / 2, top=top)
        top += self.header
        if self.kind in ("both", "surface"):
            box = page.box(left=left - 0.07 * side, top=top - 0.045 * side, width=side, height=SPACE * side)
            space = Axes3D(page.figure, box)
            page.figure.add_axes(space)
            draw_surface(space, panel, self.scale, self.limits)
            top += SPACE * side + SPACE_LABELS
        if self.kind in FLAT:
            axes = page.figure.add_axes(page.box(left=left, top=top, width=side, height=self.high))
            FLAT[self.kind](axes, panel, self.scale, self.limits, leftmost=leftmost, named=named)
            fill = partial(fill_at, panel, self.scale)
            draw_marks(
                axes, panel.marks, path=panel.path, size=(side, self.high), fill=fill, reached=reached
            )  # fmt: skip
            top += self.high + X_LABELS
            if self.farthest and panel.marks:
                box = page.box(left=left, top=top, width=side, height=DISTANCES)
                axes = page.figure.add_axes(box)
                draw_distances(
                    axes,
                    panel.marks,
                    path=panel.path,
                    reached=reached,
                    highest=self.farthest,
                    width=side,
                    leftmost=leftmost,
                )


def _write_header(page: Page, panel: SurfacePlane, *, center: float, top: float) -> None:
    for line in panel.title:
        page.write(line, center=center, top=top, fontsize=style.TITLE_SIZE, fontweight="bold")
        top += TITLE_LINE
    for line in panel.details:
        page.write(line, center=center, top=top, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)
        top += DETAIL_LINE


def _draw_bar(page: Page, scale: Scale, *, top: float) -> None:
    length = min(0.72 * page.width, 3.6)
    left = (page.width - length) / 2
    bar = page.figure.colorbar(
        ScalarMappable(scale.norm(), style.loss_colormap()),
        cax=page.figure.add_axes(page.box(left=left, top=top, width=length, height=BAR)),
        orientation="horizontal",
        extend="max" if scale.clipped else "neither",
        ticks=scale.ticks(),
        format=lambda value, _: scale.format(value),
    )
    bar.set_label(style.typeset(scale.label()))
    bar.minorticks_off()
    bar.outline.set_linewidth(0.4)


def _share(panels: Sequence[SurfacePlane], limits: Limits) -> float:
    """Return a plane's height in its widths: a unit is as long on both axes where they have the same."""
    (left, right), (low, high) = limits
    if not all(panel.same_unit for panel in panels):
        return 1.0
    return float(np.clip((high - low) / (right - left), *SHARES))


def _notes(panels: Sequence[SurfacePlane], scale: Scale, kind: SurfaceKind) -> list[str]:
    notes = []
    if scale.clipped:
        notes.append(
            f"Surfaces and colours are cut at {scale.format(scale.high, digits=2)}; "
            f"the highest {scale.metric} is {scale.format(scale.highest, digits=2)}."
        )
    names = {name.split(" (")[1].rstrip(")") for panel in panels for name in panel.names if " (" in name}
    if kind == "surface" and len(names) == 1:
        notes.append(f"Both directions: {names.pop()}.")
    grids = {panel.values.shape for panel in panels if interpolated(panel)}
    if kind in ("both", "contour") and any(min(grid) <= COARSE for grid in grids):
        sizes = " and ".join(f"{m} × {n}" for m, n in sorted(grids))
        notes.append(f"Contours are interpolated between {sizes} points.")
    return notes
