"""Spectra of several checkpoints on shared axes: eigenvalue densities, leading eigenvalues by their index."""

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
from fedscope.figures.panels import Dots, Line, Panel, Part, RuledLine, Stems, Ticks, Values, reach
from fedscope.records.entries import density_entry, finite
from fedscope.records.estimates import Eigenvalue
from fedscope.records.hessian_record import DensityEntry

if TYPE_CHECKING:
    from fedscope.landscape.spectral import spectral_results

MOST_DECADES = 10.0
LEFT = 0.46  # inches
MOST_CURVES = 10
MOST_BARS = 30  # eigenvalues that get an error bar each; more have a band
LOG_FROM = 10.0  # ratio of the largest to the smallest eigenvalue from which the axis is logarithmic
LEFT_OF_VALUES = 0.5  # inches
APART = 0.07  # of neighbouring spectra's bars at most, in steps of the index


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


def eigenvalue_figure(
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw each checkpoint's eigenvalues on its samples, largest first, with 95 % intervals over the samples.

    The intervals are of ``value`` and ``stderr_data``, as tables print them, whose degrees of freedom are one
    less than the ``batches``. A record's ``interval`` is of the eigenvalue on ever more samples, without the
    upward bias of few, and may leave out the value: it is not drawn.
    """
    if not 1 <= len(spectra) <= MOST_CURVES:
        raise UserError(f"one figure shows 1 to {MOST_CURVES} spectra, not {len(spectra)}: make several")
    panel = eigenvalue_panel(spectra, labels, smallest=smallest)
    return panels_figure([panel], keys=1, caption=caption, left=LEFT_OF_VALUES, width=width)


def eigenvalue_panel(
    spectra: Sequence[Sequence[Eigenvalue]],
    labels: Sequence[str],
    *,
    smallest: Sequence[Sequence[Eigenvalue]] | None = None,
) -> Panel:
    ends = [spectra, smallest if smallest is not None else [()] * len(spectra)]
    values = np.array([entry.value for end in ends for one in end for entry in one])
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise UserError("no eigenvalue is finite, so there is no spectrum to draw; see --json")
    parts: list[Part] = []
    for index, (upper, lower, label) in enumerate(zip(*ends, labels, strict=True)):
        # side by side, or bars would cover each other
        shift = (index - (len(spectra) - 1) / 2) * min(APART, 0.4 / len(spectra))
        parts += _curve(upper, label, index, shift)
        if lower:
            parts += _curve(lower, f"_{label}", index, shift)
    y = _ticks(finite)
    if y.scale == "symlog":
        parts.append(RuledLine(0.0, look={"color": "0.7", "linewidth": 0.5, "zorder": 0.5}))
    longest = max(map(len, spectra))
    x = Ticks(8, integer=True, limits=(0.8 - 0.02 * longest, longest + 0.02 * longest + 0.2))
    name = "index from either end" if smallest else "index"
    return Panel(parts, name, "eigenvalue", x=x, y=y, grid="")


def _curve(spectrum: Sequence[Eigenvalue], label: str, index: int, shift: float) -> list[Part]:
    values = np.array([entry.value for entry in spectrum])
    missing = int((~np.isfinite(values)).sum())
    label += f" ({missing} of {values.size} not finite)" if missing else ""
    few = len(values) <= MOST_BARS
    half = np.array([reach(*entry.error) if entry.error else np.nan for entry in spectrum])
    at = np.arange(1, len(values) + 1) + few * shift
    look = {
        **style.curve_look(index), "markeredgecolor": "white", "markeredgewidth": 0.3,
        "markersize": 3 if few else 2, "markevery": 1 if few else (len(values) // 25, len(values) // 12),
    }  # fmt: skip
    marker = style.MARKERS[index % len(style.MARKERS)]
    line = Line(label, at, values, None if few else half, shaded=True, marker=marker, look=look)
    return [line, *[Stems(at, values - half, values + half, look["color"], label=f"_{label}")] * few]


def _ticks(finite: Values) -> Ticks:
    top = float(np.abs(finite).max())
    if finite.min() <= 0 < top:
        return Ticks(scale="symlog", within=10.0 ** math.ceil(math.log10(top / 1000)))
    if finite.min() > 0 and top > LOG_FROM * finite.min():
        return Ticks(9, scale="log")
    return Ticks(6)
