"""The loss around the checkpoints that targets name: what `fedscope plot-landscape` draws, and takes."""

import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import prod
from pathlib import Path

import torch

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.surfaces.directions import random_directions
from fedscope.landscape.surfaces.surface import surface
from fedscope.process import seconds_of
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.saved_records import Analysis
from fedscope.workflows.landscape.landscape_request import THROUGH, Plane
from fedscope.workflows.landscape.scan import SharedSlice, scan
from fedscope.workflows.landscape.slices import slice_through, slices
from fedscope.workflows.progress import SILENT, Reporter, about
from fedscope.workflows.results.result_cache import key, results
from fedscope.workflows.sources.chosen_rounds import checkpoints
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session, shared


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
    with shared(Session.of(targets.registry, reporter, again=again)) as session:
        records = _scanned(targets, plane, session, rounds, most)
        return records if session.is_first else []


def _scanned(
    targets: Targets, plane: Plane, session: Session, rounds: str | None, most: int | None
) -> list[LandscapeRecord]:
    if rounds:
        runs = checkpoints(targets.checkpoints, rounds, targets.registry)
        frames = [problems(replace(targets, checkpoints=names), session.reporter) for names in runs]
        return [record for along in frames for record in scan_rounds(along, plane, session)]
    chosen = slices(plane.directions, targets, session.reporter)
    if most and len(chosen) > most:
        raise UserError(f"one figure shows up to {most} checkpoints; make several figures")
    return [scan(problem, plane, session, waypoints) for problem, waypoints in chosen]


def scan_rounds(problems: Sequence[Problem], plane: Plane, session: Session) -> list[LandscapeRecord]:
    """Return the landscapes of one run at several rounds, all along the directions of the last one.

    Each is centred at its own round's weights: a film of them shows how the curvature around the network
    changes along the directions that are the sharpest in the end. A plane along each round's own eigenvectors
    would turn from frame to frame, and a plane fixed in weight space would soon not contain the network.

    ``directions_of`` names the checkpoint whose directions all share; only the record of that checkpoint has
    the eigenvalues along them.
    """
    last = problems[-1]
    lent = SharedSlice(slice_through(last, plane, session), last)
    return [scan(problem, plane, session, lent=lent) for problem in problems]


def kept_scans(
    center: Problem, problems: Sequence[Problem], plane: Plane, session: Session
) -> list[LandscapeRecord]:
    """Return the records of ``scan``, of each problem along the directions of ``center``, found once."""
    lent: list[SharedSlice] = []

    def scanned(problem: Problem) -> LandscapeRecord:
        if not lent:
            lent.append(SharedSlice(slice_through(center, plane, session), center))
        return scan(problem, plane, session, lent=lent[0])

    return [
        session.kept(
            _name(problem, plane, center.sha256), LandscapeRecord, partial(scanned, problem),
            checkpoint=problem.checkpoint,
        )
        for problem in problems
    ]  # fmt: skip


def _name(problem: Problem, plane: Plane, lender: str) -> str:
    own = (problem.model, problem.loss_fn, problem.batches)
    loss = FlatLoss(*own, bn=plane.bn)
    question = {
        **asdict(plane),
        "versions": None,
        "schema": "landscape",
        "problem": problem.description,
        "directions_of": lender,
        # an operator does not tell apart losses that differ only far from the network
        "away": loss.value(loss.center + random_directions(problem.model).vectors[0]),
    }
    return key(Hessian(*own, bn=plane.bn), question)


def stored_records(keep: Path, hashes: Collection[str]) -> list[Analysis]:
    return [
        record
        for record in results(keep)
        if isinstance(record, HessianRecord | LandscapeRecord) and record.checkpoint.sha256 in hashes
    ]


PRODUCTS = (10, 50)  # that two eigenvectors of trained networks take


@dataclass(frozen=True)
class Outlook:
    """What one landscape takes."""

    title: str
    points: int  # at most, with ``adaptive``
    point_seconds: float  # that one of them took [s]
    product_seconds: float | None  # that a product took [s]; None: no eigenvectors are looked for

    def described(self) -> str:
        total = about(self.points * self.point_seconds)
        line = f"{self.title}: {self.points:,} points of {self.point_seconds:.2g} s, {total}"
        if self.product_seconds is None:
            return line
        products = about(*(count * self.product_seconds for count in PRODUCTS))
        return f"{line}; eigenvectors, some {PRODUCTS[0]} to {PRODUCTS[1]} products: {products}"


def outlooks(targets: Targets, plane: Plane, reporter: Reporter, rounds: str | None = None) -> list[Outlook]:
    if not rounds:
        found = [problem for problem, _ in slices(plane.directions, targets, reporter)]
        return [_outlook(problem, plane, own=plane.directions in ("eigen", "ggn")) for problem in found]
    runs = checkpoints(targets.checkpoints, rounds, targets.registry)
    frames = [problems(replace(targets, checkpoints=names), reporter) for names in runs]
    eigen = plane.directions in ("eigen", "ggn")
    return [_outlook(one, plane, own=eigen and one is run[-1]) for run in frames for one in run]


def _outlook(problem: Problem, plane: Plane, *, own: bool) -> Outlook:
    parts, passed = (problem.model, problem.loss_fn, problem.batches), list[float]()
    surface(
        *parts, directions=random_directions(problem.model), grid=3, bn=plane.bn, precision=plane.precision,
        progress=lambda *_: passed.append(time.perf_counter()),
    )  # fmt: skip
    axes = 1 if plane.directions == "line" else 2
    sizes = (plane.grid,) * axes if isinstance(plane.grid, int) else plane.grid
    each = (passed[-1] - passed[0]) / max(1, len(passed) - 1)
    operator = Hessian(*parts, bn=plane.bn) if own else None
    if operator is None:
        return Outlook(problem.title, prod(sizes), each, None)
    v = torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
    seconds_of(lambda: operator @ v)  # which makes the graphs
    return Outlook(problem.title, prod(sizes), each, seconds_of(lambda: operator @ v))
