"""What the record of a landscape says of its slice in words: curvature at its centre, barrier, distances."""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from fedscope.figures.text.advice import plain_form


def geometry(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line each: why plain PyTorch was used, curvature beside eigenvalues, barrier, distances."""
    if slow := plain_form(record):
        yield slow
    at, over, known = record["surface_curvature"], record["step_curvature"], record["curvature"]
    if at:
        of = "Gauss–Newton " * (record["directions"] == "ggn")
        beside = f" ({of}λ₁ = {_number(known[0])}, λ₂ = {_number(known[1])})" if known else ""
        yield f"curvature of the surface at its centre: {_numbers(at)}{beside}"
    if over:
        steps = " and ".join(dict.fromkeys(f"±{step:.2g}" for step in over["steps"]))
        yield f"curvature of the surface over {steps} about its centre: {_numbers(over['values'])}"
    if record["barrier"]:
        height, place = record["barrier"]["height"], record["barrier"]["at"]
        yield f"barrier between the ends: {_number(height)} at α = {place:.3g}"
    if record["marks"] and len(record["axes"]) == 2:
        farthest = max(record["marks"], key=lambda mark: mark["distance"])
        middle = median(mark["distance"] for mark in record["marks"])
        yield (
            f"distances of {len(record['marks'])} networks from the plane: median {middle:.3g}, up to "
            f"{farthest['distance']:.3g} ({farthest['label']})"
        )


def _numbers(values: list[float | None]) -> str:
    return ", ".join(map(_number, values))


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
