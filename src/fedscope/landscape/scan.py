"""The loss around one checkpoint, in the record that `fedscope plot-landscape --json` prints."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedscope.landscape.directions import Directions, eigen_directions, random_directions
from fedscope.landscape.eigen import top_eigenpairs
from fedscope.landscape.hessian import Hessian
from fedscope.landscape.measure import Stage
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.problem import Problem
from fedscope.landscape.records import Record, finite
from fedscope.landscape.results import LANDSCAPE_SCHEMA, Surface
from fedscope.landscape.surface import surface
from fedscope.streams import torch_stream


@dataclass(frozen=True)
class Plane:
    """Which plane through the weights, and the grid on it."""

    directions: Literal["eigen", "random"] = "eigen"
    grid: int = 41
    span: float = 1.0  # coordinates run from −span to span
    tol: float = 1e-2  # residual of the eigenvectors, relative to λ_max
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Found:
    """The directions of a plane, and what is known of the checkpoint they were found at."""

    directions: Directions
    checkpoint: Mapping[str, Any]
    curvature: list[float] | None = None  # λ₀, λ₁ along them
    converged: bool | None = None


def scan(
    problem: Problem, plane: Plane, stage: Stage, *, given: Found | None = None
) -> tuple[Record, Surface]:
    """Return the JSON record of schema ``fedscope/landscape/1`` and the surface in it.

    ``given`` are directions found at another checkpoint, see :mod:`fedscope.landscape.frames`.
    """
    start = time.perf_counter()
    found_at = given or find(problem, plane, stage)
    directions = found_at.directions
    own = None if given else found_at
    with stage(f"{problem.title}: surface, points") as progress:
        found = surface(
            problem.model,
            problem.loss_fn,
            problem.batches,
            directions=directions,
            span=plane.span,
            grid=plane.grid,
            bn=plane.bn,
            progress=progress,
        )
    record = finite(
        {
            "schema": LANDSCAPE_SCHEMA,
            "checkpoint": problem.checkpoint,
            "problem": {**problem.description, "bn": plane.bn},
            "axes": [{"name": axis.name, "values": axis.values} for axis in found.axes],
            "loss": found.loss,
            "directions": found.directions,
            "center_loss": found.center_loss,
            "curvature": own and own.curvature,
            "converged": own and own.converged,
            "directions_of": given and given.checkpoint,
            "seconds": time.perf_counter() - start,
            "versions": dict(plane.versions or {}),
        }
    )
    return {**record, "non_finite": found.non_finite}, found


def find(problem: Problem, plane: Plane, stage: Stage) -> Found:
    """Find a plane's directions at a checkpoint.

    ``eigen``: along the two top eigenvectors at unit norm (Mendieta et al. 2022, Fig. 1); ``random``: along
    two filter-normalised Gaussian directions (Li et al. 2018).
    """
    generator = torch_stream(problem.source.seed, plane.directions)
    if plane.directions == "random":
        return Found(random_directions(problem.model, generator), problem.checkpoint)
    operator = Hessian(problem.model, problem.loss_fn, problem.batches, bn=plane.bn)
    with stage(f"{problem.title}: eigenvectors, products") as progress:
        pairs = top_eigenpairs(operator, k=2, tol=plane.tol, generator=generator, progress=progress)
    return Found(eigen_directions(pairs), problem.checkpoint, pairs.values.tolist(), pairs.converged)
