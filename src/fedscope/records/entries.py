"""Results as the plain data of ``fedscope hessian --json`` and ``fedscope plot-landscape --json``.

Beside value and errors an entry holds its 95 % ``interval``, whether it is ``resolved`` where noise can carry
it out of its range (:mod:`fedscope.statistics.resolution`), and what a later comparison needs: under
``batches`` the quantity's part from each batch, under ``samples`` from each probe, under ``by_sample`` the
first eigenvalue's part from each sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedscope.records.number_types import ends_or_null, or_null
from fedscope.statistics.resolution import is_resolved
from fedscope.statistics.standard_errors import effective_number

if TYPE_CHECKING:
    from fedscope.landscape.spectral.spectral_results import Density, Eigenpairs, Estimate, Trace
    from fedscope.landscape.surfaces.surface_results import Surface

Record = dict[str, Any]


def eigenvalues(pairs: Eigenpairs) -> list[Record]:
    """Return an entry for each eigenvalue, descending; the intervals are of the population's values."""
    return [
        {
            "value": float(pairs.values[i]),
            "residual": float(pairs.residuals[i]),
            "stderr_data": float(pairs.stderr_data[i]),
            "bias_data": float(pairs.bias_data[i]),
            "stderr_bias": float(pairs.stderr_bias[i]),
            "dof_data": or_null(float(pairs.dof_data[i])),
            "interval": ends_or_null(pairs.interval(i)),
            "certified": bool(pairs.certified[i]),
            "effective_samples": None if pairs.samples is None else effective_number(pairs.samples[i]),
            "batches": None if pairs.forms is None else pairs.forms[i],
            "by_sample": None if pairs.samples is None or i else pairs.samples[i],
        }
        for i in range(len(pairs.values))
    ]


def trace_entry(total: Trace, *, converged: bool | None) -> Record:
    """Return the trace's entry; the interval holds both errors."""
    return {
        "value": total.value,
        "stderr_probe": total.stderr_probe,
        "stderr_data": total.stderr_data,
        "dof_data": or_null(total.dof_data),
        "interval": ends_or_null(total.population_interval()),
        "probes": total.probes,
        "deflated": total.deflated,
        "converged": converged,
        **({"product_error": total.error} if total.error else {}),
        "samples": total.samples,
        "batches": total.batches,
    }


def density_entry(density: Density) -> Record:
    """Return the density's entry, with each point's own 95 % band."""
    low, high = density.band()
    known = bool(low.isfinite().all())
    return {
        "grid": density.grid,
        "density": density.density,
        "band": [low, high] if known else None,
        "sigma": density.sigma,
        "probes": len(density.nodes),
        "negative_mass": _negative_mass(density),
        "nodes": density.nodes,
        "weights": density.weights,
        "moments": [estimate_entry(moment) for moment in density.moments],
    }


def _negative_mass(density: Density) -> Record:
    low, high = density.mass_interval(-density.sigma)
    mass = density.negative_mass
    ends = ends_or_null((1 - high, 1 - low))
    return {
        "below": -density.sigma,
        "value": mass.value,
        "stderr": mass.stderr,
        "interval": ends,
        "resolved": is_resolved(mass.value, ends, 0, 1),
    }


def surface_entries(surface: Surface) -> Record:
    """Return what a landscape's record says of its surface; ``points`` counts those that were evaluated."""
    computed = surface.computed
    return {
        "axes": [{"name": axis.name, "values": axis.values} for axis in surface.axes],
        "loss": surface.loss,
        "stderr": surface.stderr,
        "metrics": dict(surface.metrics),
        "metrics_stderr": dict(surface.metrics_stderr),
        "marks": [asdict(mark) for mark in surface.marks],
        "path": surface.path,
        "computed": computed,
        "interpolation_error": surface.interpolation_error,
        "points": int(surface.loss.numel() if computed is None else computed.sum()),
        "statistics": surface.statistics,
        "precision": surface.precision,
        "precision_error": surface.precision_error,
        "directions": surface.directions,
        "center_loss": surface.center_loss,
        "center_metrics": dict(surface.center_metrics),
    }


def estimate_entry(estimate: Estimate | None) -> Record | None:
    """Return value as estimated, error, 95 % interval cut to the range, and whether it is resolved."""
    if estimate is None:
        return None
    known = ends_or_null(estimate.interval())
    return {
        "value": estimate.value,
        "stderr": estimate.stderr,
        "interval": known and [max(estimate.low, known[0]), min(estimate.high, known[1])],
        "resolved": estimate.resolved,
        "dof": estimate.dof if math.isfinite(estimate.dof) else None,
    }


def finite(record: Record) -> Record:
    """Return ``record`` as plain JSON data; non-finite numbers become null, counted under ``non_finite``.

    An error bar that could not be formed (one batch, another engine) is null too, but no number went wrong.
    """
    count = 0

    def plain(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor):
            return plain(value.tolist())
        if isinstance(value, float) and not math.isfinite(value):
            count += 1
            return None
        if isinstance(value, Mapping):
            return {name: None if _unformed(name, item) else plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    result = plain(record)
    return {**result, "non_finite": count}


def _unformed(name: str, value: Any) -> bool:
    error = name == "residual" or name.startswith(("stderr", "bias"))
    return error and isinstance(value, float) and math.isnan(value)
