"""The clients of the round that targets name: what `fedscope clients` measures, as a function."""

from dataclasses import replace

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.records.clients_record import ClientsRecord
from fedscope.workflows.clients.clients_request import SAMPLES, ClientsRequest
from fedscope.workflows.clients.measure_clients import measure_clients
from fedscope.workflows.clients.round import no_start, start_of
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import round_uploads
from fedscope.workflows.sources.targets import Targets


def clients(
    targets: Targets,
    request: ClientsRequest,
    reporter: Reporter = SILENT,
    *,
    again: bool = False,
    possible: bool = False,
) -> list[ClientsRecord]:
    """Measure the clients of each checkpoint's round, or take what the registry has of the request.

    Args:
        targets: the rounds' global models, and the samples.
        request: what to measure, and how well.
        reporter: where progress and notes go.
        again: do not look for results.
        possible: leave out, with a note, the alignment of updates whose beginning was not kept.
    """
    request = replace(request, versions=request.versions or versions())
    few = replace(targets, samples=SAMPLES if targets.samples is None else targets.samples)
    keep = RunRegistry(targets.registry).analysis
    found = []
    for problem in problems(few, reporter):
        own = _possible(problem, request, reporter) if possible else request
        found.append(measure_clients(problem, own, reporter.stage, keep=keep, again=again))
    return found


def _possible(problem: Problem, request: ClientsRequest, reporter: Reporter) -> ClientsRequest:
    if request.anchor != "start" or "alignment" not in request.only or start_of(problem):
        return request
    round_uploads(problem)  # without them nothing is measured, and the error says so
    reporter.note(f"{problem.title}: no alignment: {no_start(problem)}")
    return replace(request, only=tuple(part for part in request.only if part != "alignment"))
