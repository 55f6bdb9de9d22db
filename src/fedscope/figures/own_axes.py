"""Records drawn in matplotlib axes of the caller's own: one quantity, without a page around it."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from mpl_toolkits.mplot3d import Axes3D

from fedscope.errors import UserError
from fedscope.figures.clients.round_figures import gap_panel, round_panel
from fedscope.figures.color_scale import shared_scale
from fedscope.figures.figure_kinds import SurfaceKind, check_kind
from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.spectrum.densities import density_panel, eigenvalue_panel
from fedscope.figures.spectrum.matrices import lacking
from fedscope.figures.surface.drawn_planes import draw_contours, draw_heat, fill_at, make_plane, shared_limits
from fedscope.figures.surface.marks import draw_marks
from fedscope.figures.surface.profiles import profile_panel
from fedscope.figures.surface.surface3d import draw_surface
from fedscope.figures.text.labels import titles
from fedscope.records.clients_record import ClientsRecord, Quantity
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord


def spectra(axes: Axes, records: Sequence[HessianRecord]) -> None:
    """Draw the eigenvalue densities of the records, or, where one has none, their eigenvalues."""
    names = titles(records)
    densities = [record.density for record in records if record.density]
    if len(densities) == len(records):
        panel = density_panel(densities, names, lambda_max=[one.lambda_max.value for one in records])
    else:
        upper, lower = zip(*(record.ends for record in records), strict=True)
        smallest = [end[::-1] for end in lower] if any(lower) else None
        panel = eigenvalue_panel(upper, names, smallest=smallest)
    draw_panel(axes, panel)
    axes.legend()


def plane(
    axes: Axes, record: LandscapeRecord, *, kind: SurfaceKind = "contour", metric: str = "loss"
) -> None:
    check_kind(kind, SurfaceKind)
    (name,) = titles([record])
    if len(record.axes) == 1:
        draw_panel(axes, profile_panel([record], [name], metric))
        return
    if isinstance(axes, Axes3D) != (kind == "surface"):
        mend = "subplot_kw={'projection': '3d'}" if kind == "surface" else ""
        raise UserError(f"a {kind} is drawn in other axes: plt.subplots({mend})")
    box = axes.get_window_extent()
    width, height = (side / axes.figure.dpi for side in (box.width, box.height))
    panel = make_plane(record, name, "", width=width, metric=metric)
    scale, limits = shared_scale([panel.values], metric), shared_limits([panel])
    if isinstance(axes, Axes3D):
        draw_surface(axes, panel, scale, limits)
    else:
        (draw_heat if kind == "heat" else draw_contours)(axes, panel, scale, limits, leftmost=True)
        size, path = (width, height), panel.path
        draw_marks(axes, panel.marks, path=path, size=size, fill=lambda x, y: fill_at(panel, scale, x, y))
    axes.set_title(name)


def clients(axes: Axes, records: Sequence[ClientsRecord], quantity: Quantity | None = None) -> None:
    name = quantity or next((one.quantity for one in records[0].flatness), None)
    found = records[0].of(name) if name else None
    if name is None or found is None:
        lacking(records[0], quantity or "loss, λ_max or trace", quantity or "loss,lambda_max,trace")
    draw_panel(axes, round_panel(records, name) if len(records) > 1 else gap_panel(records[0], found))
    axes.legend()
