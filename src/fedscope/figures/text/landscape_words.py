"""A landscape's record in words: curvature at its centre, barrier, distances."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from fedscope.figures.text.advice import plain_form
from fedscope.records.landscape_record import LandscapeRecord


def geometry(record: LandscapeRecord) -> Iterator[str]:
    """Yield a line each: of a loss that jumps, why plain PyTorch was used, curvature, barrier, distances."""
    if record.problem.departs:
        yield record.problem.departs
    if slow := plain_form(record):
        yield slow
    if record.surface_curvature:
        of = "Gauss–Newton " * (record.directions == "ggn")
        known = [_number(value) for value in record.curvature]
        beside = f" ({of}λ₁ = {known[0]}, λ₂ = {known[1]})" if known else ""
        yield f"curvature of the surface at its centre: {_numbers(record.surface_curvature)}{beside}"
    if over := record.step_curvature:
        steps = " and ".join(dict.fromkeys(f"±{step:.2g}" for step in over.steps))
        differs = any(not 0.5 < b / a < 2 for a, b in _pairs(record.surface_curvature, over.values))
        why = " (another than at the centre: kinks or higher orders within the step)" * differs
        yield f"curvature of the surface over {steps} about its centre: {_numbers(over.values)}{why}"
    if barrier := record.barrier:
        yield f"barrier between the ends: {_number(barrier.height)} at α = {barrier.at:.3g}"
    if record.marks and len(record.axes) == 2:
        farthest = max(record.marks, key=lambda mark: mark.distance)
        middle = median(mark.distance for mark in record.marks)
        yield (
            f"distances of {len(record.marks)} networks from the plane: median {middle:.3g}, up to "
            f"{farthest.distance:.3g} ({farthest.label})"
        )


def _pairs(at: Sequence[float], over: Sequence[float]) -> Iterator[tuple[float, float]]:
    return ((a, b) for a, b in zip(at, over, strict=False) if a and math.isfinite(a) and math.isfinite(b))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(map(_number, values))


def _number(value: float) -> str:
    return "not finite" if math.isnan(value) else f"{value:.4g}"
