"""The curvature of the checkpoints that targets name: what `fedscope hessian` measures, as a function."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.plan_record import PlanRecord
from fedscope.workflows.curvature.certified import Trail
from fedscope.workflows.curvature.measure_curvature import (
    compared_clients,
    curvature_of,
    known_of,
    measure,
    result_name,
)
from fedscope.workflows.curvature.measurement_plan import check_planned, planned
from fedscope.workflows.curvature.resources import resources_of
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.requests import Request, check_request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session, shared


class MeasuredCheckpoint(NamedTuple):
    """A checkpoint and what was measured of it."""

    problem: Problem
    record: HessianRecord
    kept: Path | None  # the file of the result; None where nothing is kept


def curvature(
    targets: Targets,
    request: Request,
    reporter: Reporter = SILENT,
    *,
    again: bool = False,
    memory: int | None = None,
) -> list[MeasuredCheckpoint]:
    """Measure each checkpoint, or take what the registry's results have of the request.

    With ``request.warm`` the checkpoints of a run are taken as neighbours, such as its rounds in order: the
    eigenvalues of each but the first begin at the eigenvectors of the one before.
    Of the processes that torchrun started the first alone returns anything.

    Args:
        targets: the checkpoints and samples.
        request: what to measure, and how well.
        reporter: where progress and notes go.
        again: do not look for results.
        memory: bytes that the process may take.

    Raises:
        UserError: see :func:`problems` and :func:`measure`.
    """
    request = replace(request, versions=request.versions or versions())
    with shared(Session.of(targets.registry, reporter, again=again)) as session:
        check_request(request, parallel=session.group is not None)  # before anything is read
        if memory:
            check_planned(request, memory)
        found, trails = list[MeasuredCheckpoint](), defaultdict[Path | None, Trail](Trail)
        for problem in problems(targets, session.reporter):
            trail = trails[layout.run_of(problem.path)]
            record = measure(problem, request, session, trail=trail, memory=memory)
            found.append(MeasuredCheckpoint(problem, record, session.cache.file))
        return found if session.is_first else []


def plans(
    targets: Targets, request: Request, reporter: Reporter = SILENT, *, memory: int | None = None
) -> list[PlanRecord]:
    """Return what :func:`curvature` would take for each checkpoint, by itself in a process of its own."""
    check_planned(request, memory)
    check_request(request, parallel=False)
    request, session = replace(request, versions=versions()), Session.of(targets.registry, reporter)
    found = []
    for problem in problems(targets, reporter):
        resources = resources_of(problem, request, memory)
        operator = curvature_of(problem, request, None, resources)(problem.model, problem.batches)
        clients = compared_clients(problem, request)
        name = result_name(problem, request, clients, operator, resources)
        _, missing = known_of(problem, request, session, operator, clients.origin() if clients else None)
        missing = frozenset() if session.cache.result(name) else missing
        count = len(clients.numbers) if clients else 0
        found.append(
            planned(problem, request, operator, resources, missing=missing, clients=count, limit=memory)
        )
    return found
