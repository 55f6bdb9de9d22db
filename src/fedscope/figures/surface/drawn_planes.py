"""One checkpoint's share of a landscape figure: its header, and its plane seen from above."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.typing import ColorType
from numpy.typing import NDArray
from scipy.interpolate import RectBivariateSpline

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import Grid, Scale, format_value, is_percentage
from fedscope.figures.digits import format_estimate
from fedscope.figures.label_placement import axis_name, dress_axis, width_of
from fedscope.figures.page import wrapped

if TYPE_CHECKING:  # of a record or just computed: they have the same fields
    from fedscope.landscape.surfaces import surface_results as results
    from fedscope.records import landscape_record as landscape

    Axis = landscape.AxisEntry | results.Axis
    Mark = landscape.MarkEntry | results.Mark
    Surface = landscape.SurfaceEntry | results.Surface

LABEL_SIZE = 6.0  # points, on the contour lines
LEAST, FINE = 5, 101  # points along an axis from and below which contours are interpolated
CAMERA = {"elev": 34.0, "azim": -58.0}
SMALLEST_LABELLED = 0.25  # extent of a contour line that gets a label, in plane widths
Limits = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class SurfacePlane:
    """One checkpoint, ready to be drawn."""

    names: tuple[str, str]  # of the axes
    x: Grid  # (m₀,)
    y: Grid  # (m₁,)
    values: Grid  # (m₀, m₁): the metric that is drawn
    title: list[str]  # lines
    details: list[str]  # lines
    marks: "Sequence[Mark]" = ()
    path: bool = False
    same_unit: bool = True  # of both axes: distances in weight space

    @property
    def non_finite(self) -> int:
        return int((~np.isfinite(self.values)).sum())


def make_plane(
    surface: "Surface", title: str, caption: str, *, width: float, metric: str = "loss"
) -> SurfacePlane:
    """Check the grid, and break the text into lines for a panel of ``width`` inches."""
    if len(surface.axes) != 2:
        raise UserError(f"'{title}' is a profile along one axis, not a plane: draw it without --kind")
    for axis in surface.axes:
        check_axis(axis, title)
    details = [line for line in (_center(surface, metric), _interpolated(surface)) if line]
    return SurfacePlane(
        names=(axis_name(surface.axes[0].name), axis_name(surface.axes[1].name)),
        x=array(surface.axes[0].values),
        y=array(surface.axes[1].values),
        values=grid_of(surface, metric, title),
        title=wrapped(title, width=width, size=style.TITLE_SIZE),
        details=[
            part for line in (*details, caption) for part in wrapped(line, width=width, size=style.SMALL_SIZE)
        ],
        marks=surface.marks,
        path=surface.path,
        same_unit=surface.directions != "random",
    )


def grid_of(surface: "Surface", metric: str, title: str) -> Grid:
    if metric == "loss":
        return array(surface.loss)
    if metric not in surface.metrics:
        known = ", ".join(["loss", *surface.metrics])
        raise UserError(
            f"the landscape of '{title}' has no {metric}; it has {known}; --metric {metric} computes it"
        )
    return array(surface.metrics[metric])


def shared_limits(planes: Sequence[SurfacePlane]) -> Limits:
    return (
        (min(p.x[0] for p in planes), max(p.x[-1] for p in planes)),
        (min(p.y[0] for p in planes), max(p.y[-1] for p in planes)),
    )


def draw_contours(
    axes: Axes, plane: SurfacePlane, scale: Scale, limits: Limits, *, leftmost: bool, named: bool = True
) -> None:
    _frame(axes, plane, limits, leftmost=leftmost, named=named)
    if plane.non_finite < plane.values.size:
        _fill(axes, plane, scale)


def draw_heat(
    axes: Axes, plane: SurfacePlane, scale: Scale, limits: Limits, *, leftmost: bool, named: bool = True
) -> None:
    _frame(axes, plane, limits, leftmost=leftmost, named=named)
    values = np.clip(np.ma.masked_invalid(plane.values.T), None, scale.high)
    # the colour of the edges closes the seams that viewers show between neighbouring cells
    axes.pcolormesh(
        cell_edges(plane.x), cell_edges(plane.y), values, cmap=style.loss_colormap(), norm=scale.norm(),
        edgecolors="face", linewidth=0.1,
    )  # fmt: skip


def fill_at(plane: SurfacePlane, scale: Scale, x: float, y: float) -> ColorType:
    value = plane.values[abs(plane.x - x).argmin(), abs(plane.y - y).argmin()]
    inside = plane.x[0] <= x <= plane.x[-1] and plane.y[0] <= y <= plane.y[-1]
    if not inside:
        return "white"
    return style.loss_colormap()(scale.norm()(value)) if np.isfinite(value) else style.NOT_FINITE_FILL


def check_axis(axis: "Axis", title: str) -> None:
    if len(axis.values) < 2:
        raise UserError(
            f"the landscape of '{title}' has {len(axis.values)} point along {axis.name}: "
            "compute it with --grid 3 or more"
        )
    if not (np.diff(array(axis.values)) > 0).all():
        raise UserError(
            f"the coordinates of '{title}' along {axis.name} do not increase: "
            "compute it with a --span above zero"
        )


def array(values: Any) -> NDArray[np.float64]:
    return np.asarray(values.detach().cpu().double() if hasattr(values, "detach") else values, np.float64)


def cell_edges(values: Grid) -> Grid:
    """Return the (m + 1,) borders of the cells around m coordinates; the outermost cells are half as wide."""
    middles = (values[:-1] + values[1:]) / 2
    return np.concatenate([values[:1], middles, values[-1:]])


def _center(surface: "Surface", metric: str) -> str:
    """Tell the value at the centre, where that is a network: marks name the networks on other planes."""
    value = surface.center_loss if metric == "loss" else surface.center_metrics.get(metric)
    if value is None or surface.marks:
        return ""
    if not np.isfinite(value):
        return f"the centre {metric} is not finite"
    unit, sign = (100, " %") if is_percentage(metric) else (1, "")
    error = _center_error(surface, metric)
    if error is None:
        return f"centre {metric} {format_value(unit * value, digits=3)}{sign}"
    return f"centre {metric} {format_estimate(unit * value, unit * error)}{sign}"


def _center_error(surface: "Surface", metric: str) -> float | None:
    axes = [array(axis.values) for axis in surface.axes]
    nearest = [int(np.abs(values).argmin()) for values in axes]
    there = all(
        abs(values[i]) < 1e-6 * np.diff(values).min() for values, i in zip(axes, nearest, strict=True)
    )
    stderr = surface.stderr if metric == "loss" else surface.metrics_stderr.get(metric)
    if stderr is None or not there:
        return None
    error = float(array(stderr)[tuple(nearest)])
    return error if np.isfinite(error) else None


def _interpolated(surface: "Surface") -> str:
    if surface.computed is None or (computed := array(surface.computed)).all():
        return ""
    text = f"{int(computed.sum())} of {computed.size} points computed, others"
    if surface.interpolation_error is None:
        return f"{text} interpolated"
    return f"{text} ≤ {100 * surface.interpolation_error:.2g} % off where checked"


def _frame(axes: Axes, plane: SurfacePlane, limits: Limits, *, leftmost: bool, named: bool) -> None:
    axes.set(xlim=limits[0], ylim=limits[1])
    room = width_of(axes)
    if plane.non_finite:
        _hatch(axes, plane)
    if not plane.marks:
        axes.plot(0, 0, "o", markersize=3, color="white", markeredgecolor=style.INK, markeredgewidth=0.6)
    for axis, name in ((axes.xaxis, plane.names[0]), (axes.yaxis, plane.names[1])):
        dress_axis(axis, name, limits[axis is axes.yaxis], room=room)
    if not leftmost:
        axes.tick_params(labelleft=False)
        axes.yaxis.label.set_visible(named)


def interpolated(plane: SurfacePlane) -> bool:
    """Say whether contours are drawn between the grid's points: where these are all finite and few."""
    few = min(plane.values.shape) >= LEAST and max(plane.values.shape) < FINE
    return few and plane.non_finite == 0


def _between(plane: SurfacePlane, scale: Scale) -> tuple[Grid, Grid, Grid]:
    """Return x, y and values for contours: the grid's own, or a bicubic interpolation of their heights."""
    if not interpolated(plane):
        return plane.x, plane.y, plane.values
    x, y = (np.linspace(ends[0], ends[-1], FINE) for ends in (plane.x, plane.y))
    heights = scale.height(plane.values)
    fine = np.clip(RectBivariateSpline(plane.x, plane.y, heights)(x, y), heights.min(), heights.max())
    # the logarithm's rounding may carry the minimum below the lowest band, where nothing is drawn
    return x, y, np.maximum(10.0**fine, scale.low) if scale.log else fine


def _fill(axes: Axes, plane: SurfacePlane, scale: Scale) -> None:
    x, y, grid = _between(plane, scale)
    values = np.ma.masked_invalid(grid.T)
    colormap, norm = style.loss_colormap(), scale.norm()
    extend: Literal["max", "neither"] = "max" if scale.clipped else "neither"
    filled = axes.contourf(x, y, values, levels=scale.bands(), cmap=colormap, norm=norm, extend=extend)
    filled.set_edgecolor("face")  # closes the seams that viewers show between neighbouring bands
    filled.set_linewidth(0.2)
    levels = [level for level in scale.lines() if values.min() < level < values.max()]
    if levels:
        inks = [style.ink_on(colormap(norm(level))) for level in levels]
        lines = axes.contour(x, y, values, levels=levels, colors=inks, linewidths=0.4)
        _label_lines(axes, lines, scale, {scale.format(level): colormap(norm(level)) for level in levels})


def _label_lines(axes: Axes, lines: ContourSet, scale: Scale, fills: Mapping[str, ColorType]) -> None:
    width, height = np.ptp(axes.get_xlim()), np.ptp(axes.get_ylim())
    sizes = [max((np.ptp(part, axis=0) / (width, height)).max() for part in parts) for parts in lines.allsegs]
    large = [level for level, size in zip(lines.levels, sizes, strict=True) if size > SMALLEST_LABELLED]
    for text in axes.clabel(lines, large, fmt=scale.format, fontsize=LABEL_SIZE, inline=False):
        x, y = axes.transLimits.transform(text.get_position())
        text.set_rotation(0)
        text.set_visible(bool(min(x, y, 1 - x, 1 - y) > 0.07))
        text.set_path_effects([withStroke(linewidth=2.8, foreground=fills[text.get_text()])])


def _hatch(axes: Axes, plane: SurfacePlane) -> None:
    corner = (plane.x[0], plane.y[0])
    width, height = np.ptp(plane.x), np.ptp(plane.y)
    axes.add_patch(Rectangle(corner, width, height, zorder=0, **style.HATCHED))
    axes.text(
        0.03, 0.03, f"{plane.non_finite} of {plane.values.size} points not finite", zorder=5,
        transform=axes.transAxes, fontsize=style.SMALL_SIZE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.85},
    )  # fmt: skip
