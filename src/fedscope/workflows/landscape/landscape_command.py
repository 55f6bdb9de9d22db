"""The loss around the checkpoints that targets name: what `fedscope plot-landscape` draws, as a function."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch.distributed import ProcessGroup

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.workflows.landscape.landscape_request import THROUGH, Plane
from fedscope.workflows.landscape.named_slices import slice_through
from fedscope.workflows.landscape.scan import SharedSlice, scan
from fedscope.workflows.landscape.slices import slices
from fedscope.workflows.processes import is_first, joined_group, reporter_of
from fedscope.workflows.progress import SILENT, Reporter, Stage
from fedscope.workflows.results.result_cache import ResultCache
from fedscope.workflows.sources.chosen_rounds import checkpoints
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets


def landscapes(
    targets: Targets,
    plane: Plane,
    reporter: Reporter = SILENT,
    *,
    rounds: str | None = None,
    most: int | None = None,
    again: bool = False,
) -> list[LandscapeRecord]:
    """Compute the loss on a slice around each checkpoint, or through them.

    Of the processes that torchrun started the first alone returns anything.

    Args:
        targets: the checkpoints and samples.
        plane: which slices, and the grid on them.
        reporter: where progress and notes go.
        rounds: ``FIRST:LAST:STEP`` or ``all``, rounds of runs, each along the directions of its last one.
        most: as many slices as one figure shows.
        again: do not look for points in the registry.
    """
    if rounds and plane.directions in THROUGH:
        raise UserError(
            f"--rounds shows each round along the same directions: --directions eigen, ggn or random, not "
            f"{plane.directions}; without --rounds, pca draws the rounds of RUN as a trajectory"
        )
    plane = replace(plane, versions=plane.versions or versions())
    with joined_group() as group:
        records = _scanned(
            targets, plane, reporter_of(reporter, group), rounds, most, again=again, group=group
        )
        return records if is_first(group) else []


def _scanned(
    targets: Targets,
    plane: Plane,
    reporter: Reporter,
    rounds: str | None,
    most: int | None,
    *,
    again: bool,
    group: ProcessGroup | None,
) -> list[LandscapeRecord]:
    keep, stage = RunRegistry(targets.registry).analysis, reporter.stage
    if rounds:
        runs = checkpoints(targets.checkpoints, rounds, targets.registry)
        frames = [problems(replace(targets, checkpoints=names), reporter) for names in runs]
        return [
            record
            for along in frames
            for record in scan_rounds(along, plane, stage, keep=keep, again=again, group=group)
        ]
    chosen = slices(plane.directions, targets, reporter)
    if most and len(chosen) > most:
        raise UserError(f"one figure shows up to {most} checkpoints; make several figures")
    return [
        scan(problem, plane, stage, waypoints, keep=keep, again=again, group=group)
        for problem, waypoints in chosen
    ]


def scan_rounds(
    problems: Sequence[Problem],
    plane: Plane,
    stage: Stage,
    *,
    keep: Path | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
) -> list[LandscapeRecord]:
    """Return the landscapes of one run at several rounds, all along the directions of the last one.

    Each is centred at its own round's weights: a film of them shows how the curvature around the network
    changes along the directions that are the sharpest in the end. A plane along each round's own eigenvectors
    would turn from frame to frame, and a plane fixed in weight space would soon not contain the network.

    ``directions_of`` names the checkpoint whose directions all share; only the record of that checkpoint has
    the eigenvalues along them.
    """
    last = problems[-1]
    cache = ResultCache(keep if group is None else None)
    shared = SharedSlice(slice_through(last, plane, stage, cache=cache, again=again, group=group), last)
    return [
        scan(problem, plane, stage, shared=shared, keep=keep, again=again, group=group)
        for problem in problems
    ]
