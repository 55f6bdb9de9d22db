"""The loss around checkpoints or through them, in the record that `fedscope plot-landscape --json` prints."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError, suggestion
from fedscope.factories import imported
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.finite_checks import check_finite
from fedscope.landscape.surfaces.barrier import barrier
from fedscope.landscape.surfaces.directional_curvature import curvature_at_center, curvature_over_steps
from fedscope.landscape.surfaces.fused_forward import Precision
from fedscope.landscape.surfaces.grid import grid_values
from fedscope.landscape.surfaces.metrics import Metric, accuracy
from fedscope.landscape.surfaces.surface import surface
from fedscope.records.entries import Record, finite, surface_entries
from fedscope.records.landscape import LandscapeRecord
from fedscope.records.schemas import LANDSCAPE_SCHEMA
from fedscope.workflows.landscape.named_slices import DirectionsName, Slice, slice_through
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.cache import Keeper
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.problem import Problem


@dataclass(frozen=True)
class Plane:
    """Which line or plane of weight space, and the grid on it."""

    directions: DirectionsName = "eigen"
    grid: int | tuple[int, ...] = 41
    span: float = 1.0  # half the width; or a factor on the directions' own range, see ``grid_values``
    tol: float = 1e-2  # residual of the eigenvectors, relative to λ_max
    bn: BatchNormMode = "eval"
    metrics: tuple[str, ...] = ()  # beside the loss: accuracy, MODULE:FUNCTION
    adaptive: float | None = None  # relative error to which points may be interpolated
    precision: Precision = "fp32"
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Shared:
    """A slice found at one of several checkpoints, whose directions the scans of all take over."""

    slice: Slice
    checkpoint: Record  # where they were found


def scan(
    problem: Problem,
    plane: Plane,
    stage: Stage,
    waypoints: Waypoints | None = None,
    *,
    shared: Shared | None = None,
    keep: Path | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
) -> LandscapeRecord:
    """Return the loss on a plane, or a line, as the record of schema ``fedscope/landscape/1``.

    Args:
        problem: network, loss and samples; the slice's origin.
        plane: which slice, see ``slice_through``.
        stage: see ``measure``.
        waypoints: the networks that a slice through several is about.
        shared: directions that were found before, see :mod:`fedscope.workflows.landscape.frames`; the
            eigenvalues along them are of the checkpoint where they were found alone.
        keep: folder of what an interrupted scan goes on from (:mod:`fedscope.workflows.results.cache`).
        again: do not look for the surface's points there.
        group: processes that call this with the same arguments and share the work; of its products nothing
            is kept, of its points all are.

    Raises:
        UserError: see ``slice_through``.
    """
    start = time.perf_counter()
    keeper, metrics = Keeper(keep if group is None else None), _metrics(plane.metrics)
    if shared is None:
        chosen = sliced(problem, plane, stage, waypoints, keeper=keeper, group=group)
    elif shared.checkpoint["sha256"] == problem.sha256:
        chosen = shared.slice
    else:
        loss = FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=plane.bn)
        check_finite(str(problem.path), problem.model, loss)
        chosen = Slice(shared.slice.directions)
    values = grid_values(chosen.directions, grid=plane.grid, span=plane.span)
    with stage(f"{problem.title}: surface, points") as progress:
        found = surface(
            problem.model,
            problem.loss_fn,
            problem.batches,
            directions=chosen.directions,
            values=values,
            bn=plane.bn,
            metrics=metrics,
            adaptive=plane.adaptive,
            precision=plane.precision,
            keep=keep,
            again=again,
            group=group,
            progress=progress,
        )
    keeper.delete_products()
    with stage(f"{problem.title}: curvature at the centre, axes") as progress:
        bending = _bending(problem, plane, chosen, values)
        progress(len(values), len(values))
    hump = barrier(found)
    record = finite(
        {
            "schema": LANDSCAPE_SCHEMA,
            "checkpoint": problem.checkpoint,
            "networks": waypoints.entries if waypoints else [],
            "problem": {**problem.description, "bn": plane.bn, **found.form.entry},
            **surface_entries(found),
            "barrier": asdict(hump) if hump else None,
            "curvature": chosen.curvature,
            **bending,
            "converged": chosen.converged,
            "directions_of": shared and shared.checkpoint,
            "seconds": time.perf_counter() - start,
            "versions": dict(plane.versions or {}),
        }
    )
    return LandscapeRecord.read({**record, "non_finite": found.non_finite})


def sliced(
    problem: Problem,
    plane: Plane,
    stage: Stage,
    waypoints: Waypoints | None = None,
    *,
    keeper: Keeper | None = None,
    group: ProcessGroup | None = None,
) -> Slice:
    """Return the slice that a plane names, with its tolerance and normalisation; see ``slice_through``."""
    return slice_through(
        problem, plane.directions, waypoints, stage, tol=plane.tol, bn=plane.bn, keeper=keeper, group=group
    )


def _metrics(names: Sequence[str]) -> dict[str, Metric]:
    """Return metrics under the names that they were asked for by."""
    unknown = [name for name in names if name != "accuracy" and ":" not in name]
    if unknown:
        hint = (
            suggestion(unknown[0], ("loss", "accuracy"))
            or "; use loss, accuracy or your own, MODULE:FUNCTION"
        )
        raise UserError(f"there is no metric {unknown[0]!r}{hint}")
    return {name: accuracy if name == "accuracy" else imported(name, "--metric") for name in names}


def _bending(problem: Problem, plane: Plane, chosen: Slice, values: tuple[Tensor, ...]) -> Record:
    own = (problem.model, problem.loss_fn, problem.batches)
    steps = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in values]
    over = all(steps) and curvature_over_steps(*own, directions=chosen.directions, steps=steps, bn=plane.bn)
    return {
        "surface_curvature": curvature_at_center(*own, directions=chosen.directions, bn=plane.bn),
        "step_curvature": {"values": over, "steps": steps} if over else None,
    }
