"""What CKPT… mean for each kind of `fedscope plot-landscape`: networks around which, or through which."""

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.cli.problems import checkpoint_path, problems
from fedscope.errors import UserError
from fedscope.figures.text.advice import plain_form
from fedscope.records.entries import Record
from fedscope.workflows.landscape.named_slices import DirectionsName
from fedscope.workflows.sources.checkpoint_points import Waypoints
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import round_uploads

LEAST, MOST = 3, 1001  # points along an axis
COUNTS = {"line": 2, "points": 3}


def slices(kind: DirectionsName, source: dict[str, Any]) -> list[tuple[Problem, Waypoints | None]]:
    """Return one entry per surface: its centre, and the networks of a slice through several.

    ``eigen``, ``ggn``, ``random``: a surface around every checkpoint; ``clients``: the same, with the
    clients' uploads of its round; ``line``, ``points``: one surface through two or three checkpoints;
    ``pca``: one for every RUN, of the rounds it kept, or one of several checkpoints in their order.

    Raises:
        UserError: another number of checkpoints than the kind takes, or one that cannot be had.
    """
    if kind == "pca":
        return [_among(paths, -1, source) for paths in _trajectories(source)]
    if kind in COUNTS:
        given = source["checkpoints"]
        if len(given) != COUNTS[kind]:
            raise UserError(
                f"--directions {kind} takes {COUNTS[kind]} checkpoints, not {len(given)}: such as "
                f"{' '.join(['RUN', 'RUN@client0', 'RUN@client1'][: COUNTS[kind]])}"
            )
        return [_among([_path(reference, source) for reference in given], 0, source)]
    found = problems(**source)
    if kind != "clients":
        return [(problem, None) for problem in found]
    return [(problem, Waypoints(problem, [problem.path, *round_uploads(problem)])) for problem in found]


def _among(paths: list[Path], center: int, source: dict[str, Any]) -> tuple[Problem, Waypoints]:
    (problem,) = problems(**{**source, "checkpoints": (str(paths[center]),)})
    return problem, Waypoints(problem, paths)


def _trajectories(source: dict[str, Any]) -> list[list[Path]]:
    store, references = Registry(source["registry"]), source["checkpoints"]
    if not references:
        return [_rounds(store, store.newest())]
    if all(_is_run(reference) for reference in references):
        return [_rounds(store, store.run(reference)) for reference in references]
    return [[_path(reference, source) for reference in references]]


def _is_run(reference: str) -> bool:
    return not (Path(reference).exists() or "@" in reference or "/" in reference or reference.endswith(".pt"))


def _rounds(store: Registry, run: Run) -> list[Path]:
    """Return the global models of the rounds that were kept, and the newest."""
    kept, newest = run.rounds(), store.resolve(run.name)
    if len(kept) < 2:
        raise UserError(
            f"run {run.name!r} kept {len(kept)} of its rounds, too few for a trajectory; train with "
            "--keep-every 1, or name several checkpoints in order"
        )
    last = [] if describe_checkpoint(newest)[0].round in kept else [newest]
    return [*map(run.kept, kept), *last]


def _path(reference: str, source: dict[str, Any]) -> Path:
    return checkpoint_path(Registry(source["registry"]), reference, own=bool(source["model"]))


def grid_sizes(text: str) -> int | tuple[int, ...]:
    """Return the points along all axes, ``41``, or along each, ``41x21``.

    Raises:
        UserError: it is neither, or too small to draw.
    """
    if not re.fullmatch("[0-9]{1,9}(x[0-9]{1,9})?", text):
        raise UserError(f"--grid takes the points along the axes, as 41 or 41x21, not {text!r}")
    sizes = tuple(map(int, text.split("x")))
    if min(sizes) < LEAST or max(sizes) > MOST:
        raise UserError(f"--grid takes {LEAST} to {MOST} points along each axis, not {text}")
    return sizes if len(sizes) > 1 else sizes[0]


def geometry(record: Record) -> Iterator[str]:
    """Yield what the record says of the slice in words: bending beside eigenvalues, barrier, distances."""
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
