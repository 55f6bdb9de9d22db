"""Eigenvalue densities of several checkpoints on shared axes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.digits import three_digits
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Dots, Line, Panel, Part, Ticks, Values
from fedscope.records.entries import density_entry, finite
from fedscope.records.hessian_record import DensityEntry

if TYPE_CHECKING:
    from fedscope.landscape.spectral import spectral_results

MOST_DECADES = 10.0
LEFT = 0.46  # inches


def density_figure(
    densities: "Sequence[DensityEntry | spectral_results.Density]",
    labels: Sequence[str] | None = None,
    *,
    lambda_max: Sequence[float] | None = None,
    x_scale: Literal["symlog", "linear"] = "symlog",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Overlay densities, each in its own colour and line style; the density axis is logarithmic.

    A density is a record's, or what ``spectral_density`` returns. ``labels`` stand in the legend; left out,
    the curves are numbered.

    The density axis ends just under the lowest bump of any curve, at most ten decades below the highest, so
    that single outlying eigenvalues stay visible. The symmetric-logarithmic eigenvalue axis is linear up to
    the power of ten above the widest broadening σ, under which nothing is resolved.
    ``lambda_max`` marks each checkpoint's largest eigenvalue with a triangle; ``caption``
    stands above; ``width`` is in inches.

    Raises:
        UserError: when there is no density, or none is positive anywhere.
        ValueError: when the numbers of densities, labels and eigenvalues differ.
    """
    if not densities:
        raise UserError("there is no spectrum to draw: compute one with 'fedscope hessian --density'")
    shown = [
        one if isinstance(one, DensityEntry) else DensityEntry.read(finite(density_entry(one)))
        for one in densities
    ]
    labels = labels or [f"spectrum {number}" for number in range(1, len(shown) + 1)]
    panel = density_panel(shown, labels, lambda_max=lambda_max, x_scale=x_scale)
    return panels_figure([panel], keys=1, caption=caption, left=LEFT, width=width)


def density_panel(
    densities: Sequence[DensityEntry],
    labels: Sequence[str],
    *,
    lambda_max: Sequence[float] | None = None,
    x_scale: Literal["symlog", "linear"] = "symlog",
) -> Panel:
    low, high = density_range([np.array(one.density) for one in densities])
    foot = low * (high / low) ** 0.02
    parts: list[Part] = []
    markers = [math.nan] * len(densities) if lambda_max is None else lambda_max
    for index, (one, label, top) in enumerate(zip(densities, labels, markers, strict=True)):
        density = np.array(one.density)
        missing = int((~np.isfinite(density)).sum())
        look = style.curve_look(index)
        if np.isfinite(top):
            label += f", λ_max = {three_digits(top)}"
        if missing:
            label += f" ({missing} of {density.size} points not finite)"
        if np.isfinite(top):
            triangle: dict[str, Any] = {"marker": "v", "size": 4.0, "color": look["color"]}
            parts.append(Dots(np.array([top]), np.array([foot]), label=f"_{label}", **triangle))
        # zero has no logarithm; the tails of the Gaussians underflow to it far below the axis
        positive = np.where(density > 0, density, np.nan)
        band = None
        if one.band is not None:
            below, above = map(np.array, one.band)
            band = np.array([positive - np.maximum(below, np.finfo(np.float64).tiny), above - positive])
        parts.append(Line(label, np.array(one.grid), positive, band, shaded=True, marker="", look=look))
    within = 10.0 ** math.ceil(math.log10(max(one.sigma for one in densities)))
    return Panel(
        parts, "eigenvalue", "density", grid="",
        x=Ticks(scale=x_scale, within=within), y=Ticks(7, scale="log", limits=(low, high)),
    )  # fmt: skip


def density_range(densities: Sequence[Values]) -> tuple[float, float]:
    """Return limits that hold every bump, at most ``MOST_DECADES`` below the highest."""
    positive = [np.where(np.isfinite(density), density, 0.0) for density in densities]
    top = max(float(density.max()) for density in positive)
    if not top > 0:
        raise UserError("no density is positive and finite: compute the spectrum with more probes or steps")
    bumps = [density[1:-1][_is_bump(density)] for density in positive]
    visible = [float(b) for b in np.concatenate(bumps) if b > top * 10**-MOST_DECADES]
    return min([*visible, top / 100]) / 5, top * 3


def _is_bump(density: Values) -> NDArray[np.bool_]:
    inner = density[1:-1]
    rises: NDArray[np.bool_] = (inner > density[:-2]) & (inner >= density[2:])
    return rises
