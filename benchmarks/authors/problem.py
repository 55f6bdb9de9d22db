"""One small federation for both sides: fedscope's run of it, and the same batches for a program.

130 images of the bundled digits in float64, 4 clients of 29, 26, 33 and 42 images in batches of 10, 3 of them
in each of two rounds: client 3 takes part in the first only, client 2 in the second. What a row of the table
changes is in its ``settings``.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.augment import Pipeline, Store
from fedscope.federated.record.method import Draw
from fedscope.federated.record.options import Values
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import Federation, open_run, prepare
from fedscope.federated.setup.sampling import sample_clients
from fedscope.streams import torch_stream

State = dict[str, Tensor]  # parameters and floating buffers by name
Batch = tuple[Tensor, Tensor]
COMMON: dict[str, Any] = {
    "seed": 52, "model": "mlp_digits", "clients": 4, "participation": 0.75, "rounds": 2, "epochs": 2,
    "batch_size": 10, "lr": 0.05, "lr_decay": 0.9, "weight_decay": 0.01, "train_samples": 130,
    "test_samples": 10, "keep_every": 1, "save_clients": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Everything that decides a run: initial network, data, participants, order of batches, strengths."""

    settings: Settings  # resolved: every option has its value
    module: nn.Module  # float64, with the initial weights
    clients: list[Batch]  # inputs (n_k, 1, 8, 8) float64 and labels (n_k,)
    participants: list[list[int]]  # per round
    equal_steps: bool = False  # whether all clients take E·⌈(n/N)/B⌉ steps
    taken: dict[int, int] = field(default_factory=dict)  # epochs that each client has begun
    drawn: list[Any] = field(default_factory=list)  # what fedscope's method drew, step by step

    def network(self) -> nn.Module:
        """Return a copy of the network with its initial weights."""
        return copy.deepcopy(self.module)

    def option(self, name: str) -> float:
        """Return an option of the method as a number."""
        return float(self.settings.options[name])

    def sizes(self) -> list[int]:
        """Return n_k of every client."""
        return [len(labels) for _, labels in self.clients]

    def epochs(self, client: int) -> int:
        """Return the local epochs that the client begins in a round."""
        settings, sizes = self.settings, self.sizes()
        epochs, whole = settings.epochs, math.ceil(sizes[client] / settings.batch_size)
        return math.ceil(self.nominal_steps / whole) if self.equal_steps else epochs

    @property
    def nominal_steps(self) -> int:
        """E·⌈(n/N)/B⌉, the local steps of a mean client."""
        sizes = self.sizes()
        return self.settings.epochs * math.ceil(sum(sizes) / len(sizes) / self.settings.batch_size)

    def batches(self, round: int, client: int) -> list[list[Tensor]]:
        """Return the rows of each batch of each local epoch in ``round``, counted from 1."""
        own, size = torch_stream(self.settings.seed, "batch order", round, client), self.sizes()[client]
        orders = [torch.randperm(size, generator=own) for _ in range(self.epochs(client))]
        batch_size, drops = self.settings.batch_size, self.settings.drop_last
        whole = size // batch_size * batch_size if drops else size
        limit = self.settings.steps_limit  # of an epoch
        return [list(order[: whole or size].split(batch_size))[:limit] for order in orders]

    def again(self) -> "Problem":
        """Return the problem with no batch taken yet."""
        return replace(self, taken={})

    def loader(self, client: int) -> "Loader":
        """Return what a program takes a client's batches from."""
        return Loader(self, client)

    def loader_of(self, dataset: Any) -> "Loader":
        """Return the loader of the client whose data a program has in ``dataset``.

        Raises:
            ValueError: its first image is no client's first.
        """
        first = torch.as_tensor(dataset[0][0]).double().flatten()
        for client, (inputs, _) in enumerate(self.clients):
            if len(inputs) == len(dataset) and torch.equal(inputs[0].flatten(), first):
                return Loader(self, client)
        raise ValueError("the program asks for batches of data that no client has")

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return a vector of all parameters by name."""
        named = list(self.module.named_parameters())
        pieces = vector.detach().split([p.numel() for _, p in named])
        return {name: piece.reshape(p.shape) for (name, p), piece in zip(named, pieces, strict=True)}


class Samples(list[Batch]):
    """A client's samples, with all labels beside them, as some programs have their data sets."""

    target: Any


class Featured(nn.Module):
    """A network that also tells what its last linear layer reads, which programs call the features."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    @property
    def classifier(self) -> nn.Linear:
        """The last linear layer, whose tensors the state has once."""
        return [m for m in self.network.modules() if isinstance(m, nn.Linear)][-1]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the features."""
        read: list[Tensor] = []
        handle = self.classifier.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
        logits = self.network(images)
        handle.remove()
        return logits, read[0]


def plain(state: State) -> dict[str, Tensor]:
    """Return a copy of the state of a network that is wrapped, by its own names."""
    start = "network."
    return {n.removeprefix(start): v.detach().clone() for n, v in state.items() if n.startswith(start)}


class Loader:
    """A client's batches: each pass is its next local epoch, of the rounds in which it takes part."""

    def __init__(self, problem: Problem, client: int):
        self.problem, self.client = problem, client
        self.batch_size = problem.settings.batch_size
        self.dataset = Samples(zip(*problem.clients[client], strict=True))
        self.dataset.target = problem.clients[client][1].numpy()

    def __len__(self) -> int:
        return len(self.problem.batches(1, self.client)[0])

    def __iter__(self) -> "Epoch":
        return Epoch(self._batches(), len(self))

    def _batches(self) -> Iterator[Batch]:
        problem, client = self.problem, self.client
        begun = problem.taken.get(client, 0)
        problem.taken[client] = begun + 1
        epochs = problem.epochs(client)
        rounds = [t for t, sampled in enumerate(problem.participants, 1) if client in sampled]
        inputs, labels = problem.clients[client]
        for rows in problem.batches(rounds[begun // epochs], client)[begun % epochs]:
            yield inputs[rows], labels[rows]


class Epoch:
    """A pass over a loader, whose length is known as that of PyTorch's own."""

    def __init__(self, batches: Iterator[Batch], count: int):
        self.batches, self.count = batches, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> "Epoch":
        return self

    def __next__(self) -> Batch:
        return next(self.batches)

    next = __next__  # as PyTorch's own was called before its version 1.13


class DoublePipeline(Pipeline):
    """The same images in float64."""

    def test(self, store: Store, rows: Tensor | None = None) -> Tensor:
        """Return the images as they are evaluated."""
        return super().test(store, rows).double()


def posed(method: str, given: Mapping[str, str], changes: Mapping[str, Any]) -> tuple[Problem, Federation]:
    """Return the problem of a method with its options, and fedscope's federation of it."""
    federation = prepare(Settings(**{**COMMON, **changes, "method": method}), dict(given))
    settings, training = federation.settings, federation.dataset.train
    pipeline = DoublePipeline(**vars(federation.pipeline))
    federation = replace(federation, model=federation.model.double(), pipeline=pipeline)
    clients = [(pipeline.test(training.images, rows), training.labels[rows]) for rows in federation.rows]
    participants = [
        sample_clients(settings.sampling, settings.clients, settings.participation, settings.seed, round)
        for round in range(settings.rounds)
    ]
    rule = federation.method.equal_steps
    equal = bool(rule and rule(settings.options))
    problem = Problem(settings, copy.deepcopy(federation.model), clients, participants, equal)
    draws = {name: _recorded(draw, problem.drawn) for name, draw in federation.method.draws.items()}
    return problem, replace(federation, method=replace(federation.method, draws=draws))


def _recorded(draw: Draw, drawn: list[Any]) -> Draw:
    """Return ``draw``, which also appends what it draws."""

    def recording(generator: torch.Generator, options: Values, images: Tensor, model: nn.Module) -> Any:
        drawn.append(draw(generator, options, images, model))
        return drawn[-1]

    return recording


def trained(federation: Federation) -> list[State]:
    """Return the global model after every round of fedscope's own run."""
    with TemporaryDirectory() as folder:
        run = open_run(federation, RunRegistry(Path(folder)), "run", resume=False)
        train(federation, run, lambda _: None)
        rounds = range(1, federation.settings.rounds + 1)
        return [load_checkpoint(run.after_round(round)).state for round in rounds]


def apart(start: State, ours: State, theirs: State) -> float:
    """Return the largest difference of a weight, relative to the largest change of a weight from ``start``.

    Raises:
        ValueError: the two sides have other parameters, or the program's did not move.
    """
    names = [name for name, values in start.items() if values.is_floating_point()]
    missing = [name for name in names if name not in theirs]
    if missing:
        raise ValueError(f"the program returns no {', '.join(missing)}")
    difference, change = (
        max(float((a[name].double() - b[name].double()).abs().max()) for name in names)
        for a, b in ((ours, theirs), (theirs, start))
    )
    if not change > 0:
        raise ValueError("the program's weights are those of the start")
    return difference / change
