"""One checkpoint's share of a landscape figure: its header, its surface in space, its contours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from numpy.typing import NDArray
from torch import Tensor

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.loss_scale import Grid, LossScale, format_loss
from fedscope.figures.mesh import facets
from fedscope.landscape.results import Axis, Surface

CAMERA = {"elev": 34.0, "azim": -58.0}
LABEL_SIZE = 5.0  # points, on the contour lines
SMALLEST_LABELLED = 0.25  # extent of a contour line that gets a label, in panel widths
Limits = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One checkpoint, ready to be drawn."""

    names: tuple[str, str]  # of the axes
    x: Grid  # (m₀,)
    y: Grid  # (m₁,)
    loss: Grid  # (m₀, m₁)
    title: list[str]  # lines
    details: list[str]  # lines

    @property
    def non_finite(self) -> int:
        """The number of grid points whose loss is not finite."""
        return int((~np.isfinite(self.loss)).sum())


def make_panel(surface: Surface, title: str, caption: str, *, width: float) -> Panel:
    """Check the grid, and break the text into lines for a panel of ``width`` inches.

    Raises:
        UserError: when an axis has fewer than two coordinates, or coordinates that do not increase.
    """
    for axis in surface.axes:
        _check_axis(axis, title)
    center = surface.center_loss
    details = [
        f"centre loss {format_loss(center, digits=3)}"
        if np.isfinite(center)
        else "the centre loss is not finite"
    ]
    return Panel(
        names=(surface.axes[0].name, surface.axes[1].name),
        x=_array(surface.axes[0].values),
        y=_array(surface.axes[1].values),
        loss=_array(surface.loss),
        title=[style.typeset(line) for line in wrap(title, _characters(width, style.TITLE_SIZE))],
        details=details
        + [style.typeset(line) for line in wrap(caption, _characters(width, style.SMALL_SIZE))],
    )


def shared_limits(panels: Sequence[Panel]) -> Limits:
    """Return the (low, high) of both axes that hold every panel's grid."""
    return (
        (min(p.x[0] for p in panels), max(p.x[-1] for p in panels)),
        (min(p.y[0] for p in panels), max(p.y[-1] for p in panels)),
    )


def draw_surface(axes: Axes3D, panel: Panel, scale: LossScale, limits: Limits) -> None:
    """Draw the loss as a surface, cut at the scale's ceiling, with holes where it is not finite."""
    low, high = scale.height(np.array([scale.low, scale.high]))
    polygons = facets(panel.x, panel.y, scale.height(panel.loss), ceiling=float(high))
    levels = np.array([(polygon[:, 2].mean() - low) / (high - low) for polygon in polygons])
    colors = style.loss_colormap()(levels)
    mesh = Poly3DCollection(polygons, facecolors=colors, edgecolors=_darker(colors), linewidths=0.15)
    mesh.set_rasterized(True)  # thousands of facets: vector files stay small and free of seams
    axes.add_collection3d(mesh, autolim=False)
    axes.set(xlim=limits[0], ylim=limits[1], zlim=(low, high))
    _dress_space(axes, panel.names)
    heights = {format_loss(loss): float(scale.height(np.array(loss))) for loss in scale.ticks()}
    # a label at the foot of the axis would meet the label of the axis beside it
    raised = {label: h for label, h in heights.items() if h > low + 0.06 * (high - low)}
    axes.set_zticks(list(raised.values()), list(raised), ha="left")
    axes.text(limits[0][1], limits[1][1], high + 0.1 * (high - low), "loss", ha="center")


def draw_contours(axes: Axes, panel: Panel, scale: LossScale, limits: Limits, *, leftmost: bool) -> None:
    """Draw filled and labelled contours, hatching where the loss is not finite, and mark the centre."""
    axes.set(xlim=limits[0], ylim=limits[1])
    if panel.non_finite:
        _hatch(axes, panel)
    if panel.non_finite < panel.loss.size:
        _fill(axes, panel, scale)
    axes.plot(0, 0, "o", markersize=3, color="white", markeredgecolor=style.INK, markeredgewidth=0.6)
    for axis, name in ((axes.xaxis, panel.names[0]), (axes.yaxis, panel.names[1])):
        axis.set_major_locator(MaxNLocator(4))
        axis.set_major_formatter(_coordinate)
        axis.set_label_text(style.typeset(name))
    if not leftmost:
        axes.tick_params(labelleft=False)
        axes.yaxis.label.set_visible(False)


def _dress_space(axes: Axes3D, names: tuple[str, str]) -> None:
    axes.set_proj_type("persp", focal_length=1.4)
    axes.view_init(**CAMERA)
    axes.set_box_aspect((1, 1, 0.82), zoom=0.96)
    axes.patch.set_visible(False)
    for axis, name in ((axes.xaxis, names[0]), (axes.yaxis, names[1]), (axes.zaxis, "")):
        axis.set_pane_color((1, 1, 1, 0))
        axis.line.set_linewidth(0.5)
        axis._axinfo["grid"].update(color="0.9", linewidth=0.35)
        axis.set_rotate_label(False)
        axis.set_label_text(style.typeset(name))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(2))
        axis.set_major_formatter(_coordinate)
    axes.tick_params(pad=-4)
    axes.tick_params(axis="z", pad=-6.5)
    axes.xaxis.labelpad = axes.yaxis.labelpad = -9


def _fill(axes: Axes, panel: Panel, scale: LossScale) -> None:
    loss = np.ma.masked_invalid(panel.loss.T)
    colormap, norm = style.loss_colormap(), scale.norm()
    extend: Literal["max", "neither"] = "max" if scale.clipped else "neither"
    filled = axes.contourf(
        panel.x, panel.y, loss, levels=scale.bands(), cmap=colormap, norm=norm, extend=extend
    )
    filled.set_edgecolor("face")  # closes the seams that viewers show between neighbouring bands
    filled.set_linewidth(0.2)
    levels = [level for level in scale.lines() if loss.min() < level < loss.max()]
    if levels:
        inks = ["white" if norm(level) < 0.6 else style.INK for level in levels]
        lines = axes.contour(panel.x, panel.y, loss, levels=levels, colors=inks, linewidths=0.4)
        _label_lines(axes, lines, {format_loss(level): colormap(norm(level)) for level in levels})


def _label_lines(axes: Axes, lines: ContourSet, fills: Mapping[str, ColorType]) -> None:
    """Label the contour lines that are large enough, where the label does not touch the frame."""
    width, height = np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())
    sizes = [max((np.ptp(part, axis=0) / (width, height)).max() for part in parts) for parts in lines.allsegs]
    large = [level for level, size in zip(lines.levels, sizes, strict=True) if size > SMALLEST_LABELLED]
    for text in axes.clabel(lines, large, fmt=format_loss, fontsize=LABEL_SIZE, inline=False):
        x, y = axes.transLimits.transform(text.get_position())
        text.set_visible(bool(min(x, y, 1 - x, 1 - y) > 0.06))
        text.set_path_effects(_halo(fills[text.get_text()]))


def _hatch(axes: Axes, panel: Panel) -> None:
    corner = (panel.x[0], panel.y[0])
    width, height = np.ptp(panel.x), np.ptp(panel.y)
    axes.add_patch(
        Rectangle(
            corner,
            width,
            height,
            facecolor=style.NOT_FINITE_FILL,
            edgecolor=style.NOT_FINITE_HATCH,
            linewidth=0,
            hatch="/////",
            zorder=0,
        )
    )
    axes.text(
        0.03,
        0.03,
        f"{panel.non_finite} of {panel.loss.size} points not finite",
        transform=axes.transAxes,
        fontsize=5.5,
        zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.85},
    )


def _check_axis(axis: Axis, title: str) -> None:
    if len(axis.values) < 2:
        raise UserError(
            f"the landscape of '{title}' has {len(axis.values)} point along {axis.name}: "
            "compute it with --grid 3 or more"
        )
    if not bool((axis.values.diff() > 0).all()):
        raise UserError(
            f"the coordinates of '{title}' along {axis.name} do not increase: "
            "compute it with a --span above zero"
        )


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.detach().cpu().double().numpy()


def _characters(width: float, size: float) -> int:
    """How many characters of ``size`` points fit ``width`` inches; a character is half as wide as high."""
    return max(8, int(width * 72 / (0.5 * size)))


def _darker(colors: NDArray[np.float64]) -> NDArray[np.float64]:
    return colors * [0.8, 0.8, 0.8, 1.0]


def _halo(color: ColorType) -> list[AbstractPathEffect]:
    return [withStroke(linewidth=1.8, foreground=color)]


def _coordinate(value: float, _: float) -> str:
    return f"{value:g}".replace("-", "−")
