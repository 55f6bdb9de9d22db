"""The loss around checkpoints or through them, in the record that `fedscope plot-landscape --json` prints."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from fedscope.errors import UserError, suggestion
from fedscope.factories import imported
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.finite_checks import check_finite
from fedscope.landscape.operators.products.definition import jump_of
from fedscope.landscape.surfaces.directional_curvature import curvature_at_center, curvature_over_steps
from fedscope.landscape.surfaces.directions import grid_values
from fedscope.landscape.surfaces.point_metrics import Metric, accuracy
from fedscope.landscape.surfaces.surface import surface
from fedscope.landscape.surfaces.surface_results import barrier
from fedscope.records.entries import Record, finite, surface_entries
from fedscope.records.landscape_record import LANDSCAPE_SCHEMA, LandscapeRecord
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.slices import Slice, slice_through
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.study import ALONE, Session


@dataclass(frozen=True)
class SharedSlice:
    """A slice found at one of several checkpoints, along whose directions all are scanned."""

    slice: Slice
    found_at: Problem


def scan(
    problem: Problem,
    plane: Plane,
    session: Session = ALONE,
    waypoints: Waypoints | None = None,
    *,
    lent: SharedSlice | None = None,
) -> LandscapeRecord:
    """Return the loss on a plane, or a line, as the record of schema ``fedscope/landscape/1``.

    Args:
        problem: network, loss and samples; the slice's origin.
        plane: which slice, see ``slice_through``.
        session: keeps what an interrupted scan goes on from; of a group's products nothing is kept, of its
            points all are.
        waypoints: the networks that a slice through several is about.
        lent: directions that were found before; only the record of the checkpoint where they were found
            has the eigenvalues along them.
    """
    start, metrics = time.perf_counter(), _metrics(plane.metrics)
    if lent is None:
        chosen = slice_through(problem, plane, session, waypoints)
    elif lent.found_at.sha256 == problem.sha256:
        chosen = lent.slice
    else:
        loss = FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=plane.bn)
        check_finite(str(problem.path), problem.model, loss)
        chosen = Slice(lent.slice.directions)
    values = grid_values(chosen.directions, grid=plane.grid, span=plane.span)
    with session.stage(f"{problem.title}: surface, points") as progress:
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
            keep=session.keep,
            again=session.again,
            group=session.group,
            progress=progress,
        )
    with session.stage(f"{problem.title}: curvature at the centre, axes") as progress:
        curvature = _curvature(problem, plane, chosen, values)
        progress(len(values), len(values))
    highest = barrier(found)
    record = finite(
        {
            "schema": LANDSCAPE_SCHEMA,
            "checkpoint": problem.checkpoint,
            "networks": waypoints.entries if waypoints else [],
            "problem": {
                **problem.description,
                "bn": plane.bn,
                **found.form.entry,
                **({"departs": said} if (said := _jump(problem, plane)) else {}),
            },
            **surface_entries(found),
            "barrier": asdict(highest) if highest else None,
            "curvature": chosen.curvature,
            **curvature,
            "converged": chosen.converged,
            "directions_of": lent and lent.found_at.checkpoint,
            "seconds": time.perf_counter() - start,
            "versions": dict(plane.versions or {}),
        }
    )
    return LandscapeRecord.read({**record, "non_finite": found.non_finite})


def _jump(problem: Problem, plane: Plane) -> str:
    return jump_of(FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=plane.bn))


def _metrics(names: Sequence[str]) -> dict[str, Metric]:
    unknown = [name for name in names if name != "accuracy" and ":" not in name]
    if unknown:
        meant = suggestion(unknown[0], ("loss", "accuracy"))
        hint = meant or "; use loss, accuracy or your own, MODULE:FUNCTION"
        raise UserError(f"there is no metric {unknown[0]!r}{hint}")
    return {name: accuracy if name == "accuracy" else imported(name, "--metric") for name in names}


def _curvature(problem: Problem, plane: Plane, chosen: Slice, values: tuple[Tensor, ...]) -> Record:
    own = (problem.model, problem.loss_fn, problem.batches)
    steps = [float(axis[1] - axis[0]) if len(axis) > 1 else 0.0 for axis in values]
    over = all(steps) and curvature_over_steps(*own, directions=chosen.directions, steps=steps, bn=plane.bn)
    return {
        "surface_curvature": curvature_at_center(*own, directions=chosen.directions, bn=plane.bn),
        "step_curvature": {"values": over, "steps": steps} if over else None,
    }
