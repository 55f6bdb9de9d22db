"""What is measured of a checkpoint beside its curvature, by the kind of measure."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import SplitName
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.methods.activation_norm import layers, mean_squares, strength
from fedscope.federated.record.options import Values
from fedscope.federated.record.taps import tapped
from fedscope.landscape.surfaces.directions import random_directions
from fedscope.landscape.surfaces.surface import surface
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.entries import finite, surface_entries
from fedscope.records.landscape_record import LANDSCAPE_SCHEMA, LandscapeRecord, ObjectiveRecord
from fedscope.records.outcomes import OUTCOMES_SCHEMA, OutcomesRecord, packed
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.reproduce.recipes.measures import Measure
from fedscope.streams import torch_stream
from fedscope.validation import Plain
from fedscope.workflows.clients.clients_request import FAST, ClientsRequest, chosen
from fedscope.workflows.clients.measure_clients import measure_clients
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.progress import Stage
from fedscope.workflows.sharpness.measure_sharpness import gap_entry, measure
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.study import Session

SPLITS: tuple[SplitName, SplitName] = ("train", "test")
PARTS = ("cross-entropy", "MAN term", "sum")


def _landscape(problem: Problem, wanted: Measure, session: Session) -> LandscapeRecord:
    plane = Plane(grid=wanted.grid, span=wanted.span, tol=max(wanted.tol, 1e-2), versions=versions())
    return scan(problem, plane, session)


def _objective(problem: Problem, wanted: Measure, session: Session) -> ObjectiveRecord:
    return objective_surfaces(problem, grid=wanted.grid, span=wanted.span, stage=session.stage)


@torch.no_grad()
def _outcomes(problem: Problem, _wanted: Measure, session: Session) -> OutcomesRecord:
    right = list[bool]()
    with session.stage(f"{problem.title}: answers on {problem.batches.samples:,} test samples"):
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


def _clients(problem: Problem, wanted: Measure, session: Session) -> ClientsRecord:
    parts = chosen(",".join(wanted.only)) if wanted.only else FAST
    usual = ClientsRequest()
    request = ClientsRequest(
        only=parts, top_k=wanted.top_k, tol=wanted.tol, probes=wanted.probes or usual.probes,
        anchor="global", versions=versions(),
    )  # fmt: skip
    return measure_clients(problem, request, session)


def _sharpness(problem: Problem, wanted: Measure, session: Session) -> SharpnessRecord:
    request = SharpnessRequest(only=wanted.only, versions=versions())
    record = measure(problem, request, session)
    train, test = (
        load([problem.path], replace(problem.source, samples=None, split=split))[0] for split in SPLITS
    )
    with session.stage(f"{problem.title}: losses of all samples"):
        gap = finite(gap_entry(train, test, request.bn))
    return record.edited(gap=gap)


KINDS: dict[str, Callable[[Problem, Measure, Session], Plain]] = {
    "landscape": _landscape,
    "objective": _objective,
    "outcomes": _outcomes,
    "clients": _clients,
    "sharpness": _sharpness,
}
"""(problem, measure, session) ↦ the record."""


class WithTerm(nn.Module):
    """A network that also returns MAN's term ζ·Σ_l mean(a_l²) of its batch: (logits (B, C), ())."""

    def __init__(self, network: nn.Module, options: Values) -> None:
        super().__init__()
        self.network = network
        self._options, self._names = options, layers(network, options)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        with tapped(self.network, self._names) as outputs:
            logits = self.network(images)
        found = mean_squares([outputs[name] for name in self._names], logits, self._options)
        return logits, strength(self._options) * found.sum()


def with_term(problem: Problem) -> Problem:
    """Return a problem whose loss has MAN's term: cross-entropy plus ζ·Σ_l mean(a_l²) of each batch."""
    model = WithTerm(problem.model, _options(problem)).eval()
    source = replace(problem.source, loss="cross-entropy + MAN term")
    return replace(
        problem, model=model, loss_fn=lambda out, y: cross_entropy(out[0], y) + out[1], source=source
    )


def _options(problem: Problem) -> Values:
    settings = problem.info.settings if problem.info else None
    if settings is None or "man" not in parse(settings.method).name.split("+"):
        raise UserError(f"{problem.path} was not trained with MAN, and has no MAN term")
    return settings.options


def objective_surfaces(problem: Problem, *, grid: int, span: float, stage: Stage) -> ObjectiveRecord:
    """Return the surfaces of :data:`PARTS` along two random filter-normalised directions, as one record."""
    start = time.perf_counter()
    model = WithTerm(problem.model, _options(problem))
    directions = random_directions(model, torch_stream(problem.source.seed, "random"))
    others = {
        "MAN term": lambda out, _y: out[1],
        "sum": lambda out, y: cross_entropy(out[0], y) + out[1],
    }
    with stage(f"{problem.title}: surfaces of the objective, points") as progress:
        found = surface(
            model, lambda out, y: cross_entropy(out[0], y), problem.batches, directions=directions,
            span=span, grid=grid, metrics=others, progress=progress,
        )  # fmt: skip
    plane = {**surface_entries(found), "metrics": {}, "metrics_stderr": {}, "center_metrics": {}}
    own = [{"loss": found.loss, "stderr": found.stderr, "center_loss": found.center_loss}]
    for name, values in found.metrics.items():
        error, center = found.metrics_stderr[name], found.center_metrics[name]
        own.append({"loss": values, "stderr": error, "center_loss": center})
    parts = [
        finite({"schema": LANDSCAPE_SCHEMA, **plane, **numbers, "part": name})
        for name, numbers in zip(PARTS, own, strict=True)
    ]
    return ObjectiveRecord.read(
        {
            "checkpoint": problem.checkpoint,
            "problem": problem.description,
            "parts": parts,
            "seconds": time.perf_counter() - start,
            "versions": versions(),
        }
    )
