"""One panel's surface in space: the values as heights, cut at the scale's ceiling."""

from collections.abc import Sequence

import numpy as np
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from numpy.typing import NDArray

from fedscope.figures import style
from fedscope.figures.color_scale import Scale, is_percentage
from fedscope.figures.label_placement import dress_axis, text_size, width_of
from fedscope.figures.surface.drawn_planes import CAMERA, Limits, SurfacePlane

LABEL_SHARE = 0.38  # of the panel's width that an axis' name may take
CORNER = 0.15  # of an axis, within which a tick stands at its end
DARKER = (0.8, 0.8, 0.8, 1.0)  # of a facet, its edges
USUAL_NAME = 43.0  # points: the width of "eigenvector 1"


Polygon = NDArray[np.float64]  # (vertices, 3)


def facets(
    x: NDArray[np.float64], y: NDArray[np.float64], height: NDArray[np.float64], *, ceiling: float
) -> list[Polygon]:
    """Return the quadrilaterals of ``height`` (m₀, m₁), each cut where it rises above ``ceiling``.

    A quadrilateral with a corner that is not finite is left out.
    """
    points = np.stack([*np.meshgrid(x, y, indexing="ij"), height], axis=-1)
    corners = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2)
    quads = corners.reshape(-1, 4, 3)
    quads = quads[np.isfinite(quads).all(axis=(1, 2))]
    below = (quads[:, :, 2] <= ceiling).sum(axis=1)
    whole = list(quads[below == 4])
    return whole + [_cut(quad, ceiling) for quad in quads[(below > 0) & (below < 4)]]


def _cut(polygon: Polygon, ceiling: float) -> Polygon:
    """Keep the part under the plane (Sutherland and Hodgman's clipping, one plane)."""
    kept = []
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if start[2] <= ceiling:
            kept.append(start)
        if (start[2] <= ceiling) != (end[2] <= ceiling):
            kept.append(start + (ceiling - start[2]) / (end[2] - start[2]) * (end - start))
    return np.array(kept)


def draw_surface(axes: Axes3D, plane: SurfacePlane, scale: Scale, limits: Limits) -> None:
    low, high = scale.height(np.array([scale.low, scale.high]))
    polygons = facets(plane.x, plane.y, scale.height(plane.values), ceiling=float(high))
    levels = np.array([(polygon[:, 2].mean() - low) / (high - low) for polygon in polygons])
    colors = style.loss_colormap()(levels)
    mesh = Poly3DCollection(polygons, facecolors=colors, edgecolors=colors * DARKER, linewidths=0.15)
    mesh.set_rasterized(True)  # thousands of facets: vector files stay small and free of seams
    axes.add_collection3d(mesh, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1], zlim=(low, high))
    _dress(axes, [name.split(" (")[0] for name in plane.names], limits)
    heights = {scale.format(value): float(scale.height(np.array(value))) for value in scale.ticks()}
    # a label at the foot of the axis would meet the label of the axis beside it
    raised = {label: h for label, h in heights.items() if h > low + 0.06 * (high - low)}
    axes.set_zticks(list(raised.values()), list(raised), ha="left")
    name = f"{scale.metric} (%)" if is_percentage(scale.metric) else scale.metric
    axes.text(limits[0][1], limits[1][1], high + 0.1 * (high - low), style.typeset(name), ha="center")


def _dress(axes: Axes3D, names: Sequence[str], limits: Limits) -> None:
    room = LABEL_SHARE * width_of(axes)
    axes.set_proj_type("persp", focal_length=1.4)
    axes.view_init(**CAMERA)
    axes.set_box_aspect((1, 1, 0.82), zoom=0.96)
    axes.patch.set_visible(False)
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_linewidth(0.5)
        axis._axinfo["grid"].update(color="0.9", linewidth=0.35)
        axis.set_rotate_label(True)
        axis.pane.set_closed(True)  # or its left edge is missing
        axis.pane.set(alpha=None, facecolor="none", edgecolor="0.85", linewidth=0.35)
    for axis, name, ends in zip((axes.xaxis, axes.yaxis), names, limits, strict=True):
        dress_axis(axis, name, ends, ticks=2, room=room)
    _clear_corner(axes, limits)
    axes.tick_params(pad=-4)
    axes.tick_params(axis="z", pad=-6.5)
    for axis, pad, share in ((axes.xaxis, -6.0, 0.0), (axes.yaxis, -5.0, 0.0)):
        width = text_size(axis.label.get_text(), axis.label.get_fontsize())[0]
        axis.labelpad = pad + share * max(0.0, width - USUAL_NAME)  # a long name has to clear the ticks


def _clear_corner(axes: Axes3D, limits: Limits) -> None:
    near = [CORNER * (high - low) for low, high in limits]
    (_, right), (front, back) = limits
    if any(right - near[0] < tick <= right for tick in axes.get_xticks()):
        axes.set_yticks([tick for tick in axes.get_yticks() if front + near[1] < tick <= back])
