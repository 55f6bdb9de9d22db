"""Spectra of several checkpoints on shared axes: densities with their bands, largest eigenvalues."""

import math
from typing import Any

import numpy as np
from matplotlib.scale import SymmetricalLogTransform
from matplotlib.ticker import SymmetricalLogLocator

from fedscope.figures.intervals import reach_of
from fedscope.figures.numbers import format_estimate
from fedscope.figures.spectrum.densities import density_range
from fedscope.records.hessian_record import DensityEntry
from fedscope.report import look
from fedscope.report.look import Chart
from fedscope.report.metrics import negative_mass
from fedscope.report.subjects import Shown, Subject


def density_chart(shown: Shown) -> Chart | None:
    """Overlay the densities as the static figure does: logarithmic, over a symmetric-logarithmic axis.

    The eigenvalue axis is linear up to the power of ten above the widest broadening σ. Nothing is returned
    where no record has a density that is positive anywhere.
    """
    curves = [
        (subject, record.lambda_max.value, record.density)
        for subject, record in shown
        if record.density and any(value > 0 for value in record.density.density)
    ]
    if not curves:
        return None
    threshold = 10.0 ** math.ceil(math.log10(max(one.sigma for _, _, one in curves)))
    squeeze = SymmetricalLogTransform(10, threshold, 0.6).transform
    traces = [trace for curve in curves for trace in _curve(*curve, squeeze)]
    low, high = density_range([np.array(one.density) for _, _, one in curves])
    ends = [end for _, _, one in curves for end in (one.grid[0], one.grid[-1]) if not math.isnan(end)]
    ticks = SymmetricalLogLocator(base=10, linthresh=threshold).tick_values(min(ends), max(ends))
    ticks = [tick for tick in ticks if min(ends) <= tick <= max(ends)]
    masses = [
        f"{subject.name}: width σ {format_estimate(one.sigma)}{_negative(one)}" for subject, _, one in curves
    ]
    layout = look.layout(
        f"eigenvalue (linear within ±{look.plain(threshold)})",
        "density",
        xaxis={
            "tickvals": look.numbers(squeeze(np.array(ticks)).tolist()),
            "ticktext": [*map(look.plain, ticks)],
        },
        yaxis={"type": "log", "range": [math.log10(low), math.log10(high)], "exponentformat": "power"},
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
    )
    return Chart(
        "density",
        f"Eigenvalue densities on a logarithmic scale. {'; '.join(masses)}.",
        f"Logarithmic axes; the eigenvalues' is linear within ±{look.plain(threshold)}. "
        f"Bands: 95 % intervals over the probes; triangles: λ_max. {'; '.join(masses)}.",
        traces,
        layout,
    )


def spectrum_chart(shown: Shown) -> Chart | None:
    """Draw the eigenvalues that were computed one by one, with 95 % intervals over the samples."""
    traces, tops = [], []
    spread = 0.5 / max(len(shown), 1)
    for place, (subject, record) in enumerate(shown):
        largest = record.ends[0]  # the smallest have no index from the largest
        values = [one.value for one in largest]
        if len(values) < 2 or any(map(math.isnan, values)):
            continue
        errors = [one.stderr_data for one in largest]
        halves = [0 if math.isnan(half) else half for half in map(reach_of, largest)]
        shift = spread * (place - (len(shown) - 1) / 2)
        traces.append(
            {
                **look.legend_entry(subject),
                "type": "scatter",
                "mode": "markers",
                "x": look.numbers([i + shift for i in range(1, len(values) + 1)]),
                "y": look.numbers(values),
                "error_y": {
                    "type": "data",
                    "array": look.numbers(halves),
                    "width": 3,
                },
                "marker": {"color": subject.color, "symbol": subject.symbol, "size": 8},
                "text": [format_estimate(v, e) for v, e in zip(values, errors, strict=True)],
                "hovertemplate": "%{text}",
            }
        )
        tops.append(f"{subject.name} from {format_estimate(values[0])} to {format_estimate(values[-1])}")
    if not traces:
        return None
    heights = [value for trace in traces for value in trace["y"]]
    positive = min(heights) > 0
    layout = look.layout(
        "index, from the largest",
        "eigenvalue",
        xaxis={"dtick": 1, "range": [0.5, max(len(trace["y"]) for trace in traces) + 0.5]},
        yaxis=_log_axis(min(heights), max(heights)) if positive else {},
    )
    alt = f"The eigenvalues found one by one: {'; '.join(tops)}."
    return Chart("spectrum", alt, "Error bars: 95 % intervals over the samples.", traces, layout)


def _log_axis(low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis with ticks at 1, 2 and 5 of few decades, which plotly would shorten."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(decades) < 5 else (1,)
    ticks = [digit * 10.0**power for power in decades for digit in digits]
    return {"type": "log", "tickvals": ticks, "ticktext": [*map(look.plain, ticks)]}


def _curve(subject: Subject, top: float, density: DensityEntry, squeeze: Any) -> list[dict[str, Any]]:
    grid = np.array(density.grid)
    place = look.numbers(squeeze(grid).tolist())
    curve = {
        **look.legend_entry(subject),
        "type": "scatter",
        "mode": "lines",
        "x": place,
        "y": [value if (value or 0) > 0 else None for value in look.numbers(density.density)],
        "line": look.line(subject),
        "text": [look.plain(value) for value in grid],
        "hovertemplate": "eigenvalue %{text}<br>density %{y:.3g}",
    }
    traces = [curve]
    if density.band:
        low, high = ([value if value > 1e-300 else 1e-300 for value in end] for end in density.band)
        traces += look.band(subject, place, look.numbers(low), look.numbers(high))
    if not math.isnan(top):
        marker = {"symbol": "triangle-down", "size": 11, "color": subject.color}
        outline = {"line": {"width": 1, "color": "white"}}
        traces.append(
            {
                **look.legend_entry(subject),
                "type": "scatter",
                "mode": "markers",
                "showlegend": False,
                "x": look.numbers(squeeze(np.array([top])).tolist()),
                "y": [0.03],
                "yaxis": "y2",
                "marker": {**marker, **outline},
                "cliponaxis": False,
                "hovertemplate": f"λ_max {format_estimate(top)}",
            }
        )
    return traces


def _negative(density: DensityEntry) -> str:
    mass = negative_mass(density.negative_mass)
    return f", share of eigenvalues below −σ {mass}" if mass else ""
