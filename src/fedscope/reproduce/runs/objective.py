"""The parts of an objective on one plane: cross-entropy, a method's term of the task loss, and their sum."""

import time
from dataclasses import replace

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.methods.activation_norm import layers, mean_squares, strength
from fedscope.federated.record.options import Values
from fedscope.federated.record.taps import tapped
from fedscope.landscape.surfaces.directions import random_directions
from fedscope.landscape.surfaces.surface import surface
from fedscope.records.entries import finite, surface_entries
from fedscope.records.landscape_record import LANDSCAPE_SCHEMA, ObjectiveRecord
from fedscope.streams import torch_stream
from fedscope.workflows.progress import Stage
from fedscope.workflows.sources.problem import Problem

PARTS = ("cross-entropy", "MAN term", "sum")


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
