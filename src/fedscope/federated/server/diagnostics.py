"""What rank 0 records of a round's updates, of its step, and of the clients' local training."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.round_diagnostics import CurvatureProbe, Diagnostics
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.federated.client.observations import OWN
from fedscope.federated.parallel.training_round import TrainingRound
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import Trained
from fedscope.federated.server.run_files import finite
from fedscope.federated.server.updates import ClientUpdates, short
from fedscope.federated.server.weighted_scatter import pieces
from fedscope.process import one_thread


class DiagnosticsRecorder:
    """Records the rounds of a run, of which ``done`` are over; nothing of it is used in training."""

    def __init__(self, training: TrainingRound, run: RunFolder, done: int):
        self._training = training
        model = training.model
        self._statistics = model.positions(running_statistics(model)).cpu()
        self._shared = None if bool(training.shared.all()) else training.shared
        self._start = self._parameters(training.origin).clone()
        self._last_step: Tensor | None = None  # (shared,)
        if done and run.anchor(done).exists():
            before = self._read(run.anchor(done))
            self._last_step = self._parameters(training.origin) - self._parameters(before)

    def begin_round(self, clients: Sequence[int], weights: Sequence[float]) -> None:
        training = self._training
        self._row = {client: row for row, client in enumerate(clients)}
        self._start.copy_(self._parameters(training.origin))
        self._updates = ClientUpdates(clients, weights, self._start, self._shared, self._statistics)
        width = training.trainer.observed.values.shape[1]
        self._observed = torch.zeros(len(clients), width, dtype=torch.float64)
        self._losses = torch.zeros(len(clients), dtype=torch.float64)
        self._memory = dict.fromkeys(training.clients.memory.names, 0.0)

    def add(self, stack: Sequence[int], trained: Trained) -> None:
        self._training.clock.switch_to("diagnostics")
        self._updates.add(stack, trained.values)
        rows = torch.tensor([self._row[client] for client in stack])
        self._observed[rows], self._losses[rows] = trained.observed, trained.loss
        for name, vectors in self._training.clients.memory.split(trained.memory).items():
            self._memory[name] += float(vector_norm(vectors, dim=1, dtype=torch.float64).sum())
        self._training.clock.switch_to("aggregation")

    def end(self, state: Mapping[str, Tensor]) -> None:
        training, count = self._training, len(self._row)
        training.clock.switch_to("diagnostics")
        self._found = self._updates.record()
        now, first = self._parameters(training.origin), self._parameters(training.clients.initial)
        last = self._last_step
        self._last_step = torch.empty_like(now) if last is None else last
        step, distance, before, along = way(now, self._start, first, last, self._last_step)
        self._server = {
            "step": finite(step),
            "cosine": None
            if last is None
            else finite(along / (step * before) if step * before else math.nan),
            "distance": finite(distance),
            "state": {name: finite(float(vector.norm())) for name, vector in state.items()},
            "memory": {name: finite(total / count) for name, total in self._memory.items()},
        }
        training.clock.switch_to("aggregation")

    def record(self, class_accuracy: Sequence[float], curvature: CurvatureProbe | None) -> Diagnostics:
        content = {
            "updates": self._found.to_json(),
            "server": self._server,
            "local": self._local(),
            "class_accuracy": [finite(share) for share in class_accuracy],
            **({"curvature": curvature.to_json()} if curvature else {}),
        }
        return Diagnostics.read(content, "a round's diagnostics")

    def _local(self) -> dict[str, object]:
        of = dict(zip(OWN, self._observed.T, strict=False))
        total = {name: float(values.sum()) for name, values in of.items()}
        found: dict[str, object] = {
            "before": short(of["before"]),
            "first_epoch": short(of["first_epoch"]),
            "last_epoch": short(self._losses),
        }
        trainer = self._training.trainer
        if trainer.clips:
            found["clipped"] = total["clipped"] / sum(map(self._training.local_steps, self._row))
        if total["ascents"]:
            found["ascent"] = {name: finite(total[name] / total["ascents"]) for name in ("rise", "cosine")}
        if trainer.observed.noted:
            found["noted"] = self._noted(trainer.observed.noted, total["passes"])
        return found

    def _noted(self, noted: Mapping[str, Sequence[str]], passes: float) -> dict[str, dict[str, float | None]]:
        means = iter((self._observed[:, len(OWN) :].sum(0) / passes).tolist())
        return {name: {label: finite(next(means)) for label in labels} for name, labels in noted.items()}

    def _read(self, path: Path) -> Tensor:
        model = self._training.model
        kept, counters = model.values[0].clone(), model.counters.clone()
        model.load(load_checkpoint(path).state)
        found = model.values[0].clone()
        model.values[0] = kept
        model.counters.copy_(counters)
        return found

    def _parameters(self, values: Tensor) -> Tensor:
        parameters = values[: self._training.model.size].cpu()
        return parameters if self._shared is None else parameters[self._shared]


@one_thread()
def way(
    now: Tensor, before: Tensor, first: Tensor, last_step: Tensor | None, step: Tensor
) -> tuple[float, float, float, float]:
    """Return ‖now − before‖, ‖now − first‖, the last step's length, and the product of both steps.

    Sums are in float64; ``step`` becomes now − before, and may be the place of the last step.
    """
    last = torch.zeros_like(step) if last_step is None else last_step
    gram = torch.zeros(3, 3, dtype=torch.float64)
    for piece in pieces(len(now), 3):
        new = now[piece].double()
        rows = torch.stack([new - before[piece], new - first[piece], last[piece].double()])
        gram += rows @ rows.T
        step[piece] = rows[0]
    step_, distance, last_ = gram.diagonal().sqrt().tolist()
    return step_, distance, last_, float(gram[0, 2])


def running_statistics(model: FlatModel) -> list[str]:
    owners = [name for name, module in model.module.named_modules() if isinstance(module, _BatchNorm)]
    return [f"{name}.{kind}".lstrip(".") for name in owners for kind in ("running_mean", "running_var")]
