"""What checkpoints mean for each kind of slice: networks around which, or through which, it lies."""

from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.choices import DirectionsName
from fedscope.errors import UserError
from fedscope.workflows.progress import Reporter
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.chosen_rounds import client_of_round, steps_of
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import at, checkpoint_path, problems
from fedscope.workflows.sources.run_clients import round_uploads
from fedscope.workflows.sources.targets import Targets

COUNTS = {"line": 2, "points": 3}


def slices(
    kind: DirectionsName, targets: Targets, reporter: Reporter
) -> list[tuple[Problem, Waypoints | None]]:
    """Return one entry per surface: its centre, and the networks of a slice through several.

    ``eigen``, ``ggn``, ``random``: a surface around every checkpoint; ``clients``: the same, with the
    clients' uploads of its round; ``line``, ``points``: one surface through two or three checkpoints;
    ``pca``: one for every RUN, of the rounds it kept, for every RUN@ROUND:clientK, of the local steps that
    were kept, or one of several checkpoints in their order.
    """
    if kind == "pca":
        return [_among(paths, -1, targets, reporter) for paths in _trajectories(targets)]
    if kind in COUNTS:
        given = targets.checkpoints
        if len(given) != COUNTS[kind]:
            raise UserError(
                f"--directions {kind} takes {COUNTS[kind]} checkpoints, not {len(given)}: such as "
                f"{' '.join(['RUN', 'RUN@client0', 'RUN@client1'][: COUNTS[kind]])}"
            )
        return [_among([checkpoint_path(targets, reference) for reference in given], 0, targets, reporter)]
    found = problems(targets, reporter)
    if kind != "clients":
        return [(problem, None) for problem in found]
    return [
        (problem, Waypoints(problem, [problem.path, *round_uploads(problem).values()])) for problem in found
    ]


def _among(paths: list[Path], center: int, targets: Targets, reporter: Reporter) -> tuple[Problem, Waypoints]:
    (problem,) = at([paths[center]], targets, reporter)
    return problem, Waypoints(problem, paths)


def _trajectories(targets: Targets) -> list[list[Path]]:
    store, references = RunRegistry(targets.registry), targets.checkpoints
    if not references:
        return [_rounds(store, store.newest())]
    if all(_is_run(store, reference) for reference in references):
        return [_rounds(store, store.run(reference)) for reference in references]
    if all(map(client_of_round, references)):
        return [_steps(store, reference) for reference in references]
    return [[checkpoint_path(targets, reference) for reference in references]]


def _is_run(store: RunRegistry, reference: str) -> bool:
    """Say whether a run is named, which a file or folder of that name elsewhere does not hide."""
    if "@" in reference or "/" in reference or reference.endswith(".pt"):
        return False
    return not Path(reference).exists() or layout.is_run(store.root / reference)


def _steps(store: RunRegistry, reference: str) -> list[Path]:
    """Return a client's way in its round: its start, the steps, its upload, each as far as it was kept."""
    run, (round, client) = store.run(reference.partition("@")[0]), client_of_round(reference) or (0, 0)
    steps = [run.step(round, client, step) for step in steps_of(store, reference)]
    start, upload = run.start(round), run.client(client, round)
    way = [*([start] if start else []), *steps, *([upload] if upload.is_file() else [])]
    if len(way) < 3:
        raise UserError(
            f"{reference} has {len(way)} models from its start to its upload, too few for a plane; keep more "
            f"with `fedscope train --keep-steps 1:{client}:{round}`, its ends with --save-clients all"
        )
    return way


def _rounds(store: RunRegistry, run: RunFolder) -> list[Path]:
    kept, newest = run.rounds(), store.resolve(run.name)
    if len(kept) < 2:
        raise UserError(
            f"run {run.name!r} kept {len(kept)} of its rounds, too few for a trajectory; train with "
            "--keep-every 1, or name several checkpoints in order"
        )
    last = [] if describe_checkpoint(newest)[0].round in kept else [newest]
    return [*map(run.after_round, kept), *last]
