"""Records drawn in matplotlib axes of the caller's own: one quantity, without a page around it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.by_round import round_panel
from fedscope.figures.clients.gaps import draw_gaps
from fedscope.figures.clients.panels import lacking, name_clients, prepare
from fedscope.figures.color_scale import format_value, shared_scale
from fedscope.figures.kinds import SurfaceKind
from fedscope.figures.runs.lines import draw_panel
from fedscope.figures.spectrum.densities import draw_densities
from fedscope.figures.spectrum.eigenvalues import draw_eigenvalues
from fedscope.figures.surface.from_records import read_surface
from fedscope.figures.surface.marks import draw_marks
from fedscope.figures.surface.panels import draw_contours, draw_heat, fill_at, make_panel, shared_limits
from fedscope.figures.surface.profiles import draw_profile
from fedscope.figures.surface.surface3d import draw_surface
from fedscope.figures.text.labels import titles
from fedscope.records.clients_record import SYMBOLS, ClientsRecord, Quantity
from fedscope.records.differences import Difference
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord


def spectra(axes: Axes, records: Sequence[HessianRecord]) -> None:
    """Draw the eigenvalue densities of the records, or, where one has none, their eigenvalues."""
    names = titles(records)
    densities = [record.density for record in records if record.density]
    if len(densities) == len(records):
        draw_densities(axes, densities, names, lambda_max=[one.lambda_max.value for one in records])
    else:
        upper, lower = zip(*(record.ends for record in records), strict=True)
        smallest = [end[::-1] for end in lower] if any(lower) else None
        draw_eigenvalues(axes, upper, names, smallest=smallest)
    axes.legend()


def plane(
    axes: Axes, record: LandscapeRecord, *, kind: SurfaceKind = "contour", metric: str = "loss"
) -> None:
    """Draw a plane as contours, as a heat map, or in 3-D axes as a surface; a line as a curve."""
    surface, (name,) = read_surface(record), titles([record])
    if len(surface.axes) == 1:
        draw_profile(axes, surface, name, metric=metric)
        return
    if isinstance(axes, Axes3D) != (kind == "surface"):
        mend = "subplot_kw={'projection': '3d'}" if kind == "surface" else ""
        raise UserError(f"a {kind} is drawn in other axes: plt.subplots({mend})")
    box = axes.get_window_extent()
    width, height = (side / axes.figure.dpi for side in (box.width, box.height))
    panel = make_panel(surface, name, "", width=width, metric=metric)
    scale, limits = shared_scale([panel.values], metric), shared_limits([panel])
    if isinstance(axes, Axes3D):
        draw_surface(axes, panel, scale, limits)
    else:
        (draw_heat if kind == "heat" else draw_contours)(axes, panel, scale, limits, leftmost=True)
        size, path = (width, height), panel.path
        draw_marks(axes, panel.marks, path=path, size=size, fill=lambda x, y: fill_at(panel, scale, x, y))
    axes.set_title(name)


def clients(axes: Axes, records: Sequence[ClientsRecord], quantity: Quantity | None = None) -> None:
    """Draw one quantity, the first measured unless it is named: of a round dumbbells, of several the gaps."""
    name = quantity or next((one.quantity for one in records[0].flatness), None)
    found = records[0].of(name) if name else None
    if name is None or found is None:
        lacking(records[0], quantity or "loss, λ_max or trace", quantity or "loss,lambda_max,trace")
    if len(records) > 1:
        draw_panel(axes, round_panel(records, name))
    else:
        prepare(axes, SYMBOLS[name])
        draw_gaps(axes, found)
        name_clients(axes, records[0].numbers, width=axes.get_window_extent().width / axes.figure.dpi)
    axes.legend()


def forest(axes: Axes, names: Sequence[str], differences: Sequence[Difference]) -> None:
    """Draw differences of one quantity from zero, a line each, with their 95 % intervals.

    What is decided is drawn filled, what is undecided hollow; NaN leaves a gap.
    """
    places = np.arange(len(names))[::-1]
    color = style.method_colors(1)[0]
    for place, one in zip(places, differences, strict=True):
        low, high = one.interval
        axes.plot([low, high], [place, place], color=color, linewidth=1.1, solid_capstyle="butt")
        decided = one.verdict in ("lower", "higher")
        axes.plot(one.value, place, "o", color=color, markersize=4, markerfacecolor=color if decided else "w")
    axes.axvline(0, color=style.INK, linewidth=0.5)
    axes.set_yticks(places, [style.typeset(name) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: format_value(value))
    axes.set_xlabel(style.typeset(f"difference in {differences[0].quantity} (95 % interval)"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
