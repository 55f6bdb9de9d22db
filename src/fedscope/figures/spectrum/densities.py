"""Eigenvalue densities of several checkpoints on shared axes."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, SymmetricalLogLocator
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.numbers import three_digits
from fedscope.figures.spectrum.legend_above import page_with_legend
from fedscope.records.entries import density_entry, finite
from fedscope.records.hessian_record import DensityEntry

if TYPE_CHECKING:
    from fedscope.landscape.spectral import spectral_results

MOST_DECADES = 10.0
LEFT = 0.46  # inches

Values = NDArray[np.float64]


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
    draw = partial(draw_densities, densities=shown, labels=labels, lambda_max=lambda_max, x_scale=x_scale)
    return page_with_legend(draw, entries=len(shown), caption=caption, left=LEFT, width=width)


def draw_densities(
    axes: Axes,
    densities: Sequence[DensityEntry],
    labels: Sequence[str],
    *,
    lambda_max: Sequence[float] | None = None,
    x_scale: Literal["symlog", "linear"] = "symlog",
) -> None:
    """Draw the densities of records with their bands and scales, but without a legend."""
    curves = [(np.array(one.grid), np.array(one.density)) for one in densities]
    low, high = density_range([density for _, density in curves])
    markers = [float("nan")] * len(curves) if lambda_max is None else lambda_max
    for index, (curve, label, marker) in enumerate(zip(curves, labels, markers, strict=True)):
        line = style.curve_look(index)
        _draw_curve(axes, curve, label, marker, line)
        _draw_band(axes, curve[0], densities[index].band, line["color"])
    axes.set_yscale("log")
    axes.set(ylim=(low, high), xlabel="eigenvalue", ylabel="density")
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())
    _scale_eigenvalues(axes, x_scale, sigma=max(one.sigma for one in densities))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_curve(
    axes: Axes, curve: tuple[Values, Values], label: str, marker: float, look: Mapping[str, Any]
) -> None:
    grid, density = curve
    missing = int((~np.isfinite(density)).sum())
    if np.isfinite(marker):
        label += f", λ_max = {three_digits(marker)}"
        # on the axis itself, at its own eigenvalue
        axes.plot(
            marker, 0.02, marker="v", markersize=4, color=look["color"], markeredgecolor="white",
            markeredgewidth=0.4, linestyle="", transform=axes.get_xaxis_transform(), zorder=4,
        )  # fmt: skip
    if missing:
        label += f" ({missing} of {density.size} points not finite)"
    # zero has no logarithm; the tails of the Gaussians underflow to it far below the axis
    positive = np.where(density > 0, density, np.nan)
    axes.plot(grid, positive, label=style.typeset(label), **look)


def _draw_band(axes: Axes, grid: Values, band: Sequence[Sequence[float]] | None, color: Any) -> None:
    if band is not None:
        low, high = map(np.array, band)
        tiny = np.finfo(np.float64).tiny  # zero has no logarithm
        axes.fill_between(grid, np.maximum(low, tiny), high, color=color, alpha=0.2, linewidth=0)


def _scale_eigenvalues(axes: Axes, x_scale: Literal["symlog", "linear"], *, sigma: float) -> None:
    if x_scale == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(6))
        return
    threshold = 10.0 ** math.ceil(math.log10(sigma))
    axes.set_xscale("symlog", linthresh=threshold, linscale=0.6)
    locator = SymmetricalLogLocator(base=10, linthresh=threshold)
    locator.set_params(numticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_minor_locator(NullLocator())


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
