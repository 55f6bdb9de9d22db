"""The loss around the checkpoints that targets name: what `fedscope plot-landscape` draws, as a function."""

from dataclasses import replace

from torch.distributed import ProcessGroup

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.registry import Registry
from fedscope.errors import UserError
from fedscope.records.landscape import LandscapeRecord
from fedscope.workflows.landscape.frames import scan_rounds
from fedscope.workflows.landscape.named_slices import THROUGH, Plane
from fedscope.workflows.landscape.rounds import checkpoints, parse
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.landscape.slices import slices
from fedscope.workflows.processes import is_first, joined_group, spoken
from fedscope.workflows.progress import SILENT, Reporter
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
        rounds: ``A:B:C``, rounds of runs, each along the directions of its last one.
        most: as many slices as one figure shows.
        again: do not look for points in the registry.

    Raises:
        UserError: see :func:`slices` and :func:`scan`, or too many slices.
    """
    if rounds and plane.directions in THROUGH:
        raise UserError(
            f"--rounds shows each round along the same directions: --directions eigen, ggn or random, not "
            f"{plane.directions}; without --rounds, pca draws the rounds of RUN as a trajectory"
        )
    plane = replace(plane, versions=plane.versions or versions())
    with joined_group() as group:
        records = _scanned(targets, plane, spoken(reporter, group), rounds, most, again=again, group=group)
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
    keep, stage = Registry(targets.registry).analysis, reporter.stage
    if rounds:
        runs = checkpoints(targets.checkpoints, parse(rounds), targets.registry)
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
