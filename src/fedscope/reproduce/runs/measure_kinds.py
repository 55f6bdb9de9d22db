"""What is measured of a checkpoint beside its curvature, by the kind of measure."""

from collections.abc import Callable
from dataclasses import replace

import torch

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import SplitName
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.entries import finite
from fedscope.records.landscape_record import LandscapeRecord, ObjectiveRecord
from fedscope.records.outcomes import OUTCOMES_SCHEMA, OutcomesRecord, packed
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.objective import objective_surfaces
from fedscope.validation import Plain
from fedscope.workflows.clients.clients_request import FAST, ClientsRequest, chosen
from fedscope.workflows.clients.measure_clients import measure_clients
from fedscope.workflows.landscape.named_slices import Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.progress import Reporter, Stage
from fedscope.workflows.sharpness.measure_sharpness import gap_entry, measure
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest
from fedscope.workflows.sources.problem import Problem, load

SPLITS: tuple[SplitName, SplitName] = ("train", "test")


def _landscape(problem: Problem, wanted: Measure, stage: Stage) -> LandscapeRecord:
    plane = Plane(grid=wanted.grid, span=wanted.span, tol=max(wanted.tol, 1e-2), versions=versions())
    return scan(problem, plane, stage)


def _objective(problem: Problem, wanted: Measure, stage: Stage) -> ObjectiveRecord:
    return objective_surfaces(problem, grid=wanted.grid, span=wanted.span, stage=stage)


@torch.no_grad()
def _outcomes(problem: Problem, _wanted: Measure, stage: Stage) -> OutcomesRecord:
    right = list[bool]()
    with stage(f"{problem.title}: answers on {problem.batches.samples:,} test samples"):
        for inputs, labels in problem.batches:
            right += (problem.model(inputs).argmax(1) == labels).tolist()
    return OutcomesRecord.read(
        {
            "schema": OUTCOMES_SCHEMA,
            "checkpoint": problem.checkpoint,
            "problem": problem.description,
            "samples_sha256": problem.batches.sha256,
            "right": packed(right),
            "versions": dict(versions()),
        }
    )


def _clients(problem: Problem, wanted: Measure, stage: Stage) -> ClientsRecord:
    parts = chosen(",".join(wanted.only)) if wanted.only else FAST
    usual = ClientsRequest()
    request = ClientsRequest(
        only=parts, top_k=wanted.top_k, tol=wanted.tol, probes=wanted.probes or usual.probes,
        anchor="global", versions=versions(),
    )  # fmt: skip
    return measure_clients(problem, request, stage)


def _sharpness(problem: Problem, wanted: Measure, stage: Stage) -> SharpnessRecord:
    request = SharpnessRequest(only=wanted.only, versions=versions())
    record = measure(problem, request, Reporter(stage))
    train, test = (
        load([problem.path], replace(problem.source, samples=None, split=split))[0] for split in SPLITS
    )
    with stage(f"{problem.title}: losses of all samples"):
        gap = finite(gap_entry(train, test, request.bn))
    return record.edited(gap=gap)


KINDS: dict[str, Callable[[Problem, Measure, Stage], Plain]] = {
    "landscape": _landscape,
    "objective": _objective,
    "outcomes": _outcomes,
    "clients": _clients,
    "sharpness": _sharpness,
}
"""(problem, measure, stage) ↦ the record."""
