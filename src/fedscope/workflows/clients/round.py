"""The models of one round: the clients' uploads and their mean, the global model, what it began with."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, load_checkpoint
from fedscope.checkpoints.file.fields import UNKNOWN
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.setup.federation import local_settings
from fedscope.landscape.heterogeneity.one_round.averaging_cost import mean_model
from fedscope.workflows.sources.problem import Problem, checkpoint_entry, network, renamed
from fedscope.workflows.sources.run_clients import Participants, RunClient


@dataclass(frozen=True)
class Start:
    """The model that the clients of a round began with."""

    model: nn.Module
    sha256: str
    entry: dict[str, object]  # of a record


@dataclass(frozen=True)
class LoadedRound:
    """One round of a run, with all its models in memory."""

    problem: Problem  # the global model after it, and the samples of the global loss
    clients: tuple[RunClient, ...]
    shares: tuple[float, ...]  # p_k, as the server weighted the uploads
    start: Start | None

    @classmethod
    def of(cls, problem: Problem, participants: Participants) -> "LoadedRound":
        clients = tuple(participants)
        return cls(problem, clients, _shares(problem, clients), start_of(problem))

    @cached_property
    def mean(self) -> nn.Module:
        """Σ p_k w_k, with BatchNorm's statistics averaged as a server does."""
        return mean_model([client.model for client in self.clients], self.shares)

    @property
    def has_statistics(self) -> bool:
        layers = (one for one in self.mean.modules() if isinstance(one, _BatchNorm))
        return any(layer.running_mean is not None for layer in layers)

    @property
    def distance(self) -> float:
        """How far the mean of the uploads is from the global model, relative to the clients' distance."""
        mean = weights(self.mean)
        spread = [
            p * float((weights(c.model) - mean).square().sum())
            for p, c in zip(self.shares, self.clients, strict=True)
        ]
        away = float((mean - weights(self.problem.model)).norm())
        return away / sum(spread) ** 0.5 if sum(spread) > 0 else float(away > 0)

    def anchor(self, which: str) -> nn.Module:
        """Return the model that updates are from."""
        if which == "global":
            return self.problem.model
        if self.start is None:
            raise UserError(no_start(self.problem))
        return self.start.model

    def check_moved(self, anchor: str) -> None:
        """Raise UserError where a client's upload is the model that updates are from."""
        begin = weights(self.anchor(anchor))
        for client in self.clients:
            if torch.equal(weights(client.model), begin):
                raise UserError(
                    f"client {client.number} did not move from the {anchor} model, so that its update has no "
                    "direction; leave alignment and critical out with --only"
                )


def weights(model: nn.Module) -> Tensor:
    """Return the parameters that require a gradient, (n,) float64."""
    return torch.cat([p.detach().double().reshape(-1) for p in model.parameters() if p.requires_grad])


def start_of(problem: Problem) -> Start | None:
    """Return the model that the round of a checkpoint began with; None where the registry has none of it."""
    folder, info = layout.run_of(problem.path), problem.info
    if folder is None or info is None or info.round < 1:
        return None
    path = RunFolder(folder).start(info.round)
    if path is None:
        return None
    about, sha256 = describe_checkpoint(path)
    about = renamed(path, about)
    model = network(load_checkpoint(path), problem.source)
    return Start(model, sha256, checkpoint_entry(path, sha256, about))


def no_start(problem: Problem) -> str:
    round = problem.info.round if problem.info else 0
    return (
        f"the model that round {round} began with is not in the registry, so that the updates of its clients "
        "are not known: train with --save-clients all or --keep-every 1, take --anchor global for their "
        "distances from the round's result, or leave alignment out with --only"
    )


def _shares(problem: Problem, clients: tuple[RunClient, ...]) -> tuple[float, ...]:
    """Return p_k of the clients: by the method's own weights, or by their samples where it is not known."""
    assert problem.info
    settings = problem.info.settings
    sizes = [c.info.samples if c.info and c.info.samples else c.batches.population or 0 for c in clients]
    kind = settings.weights
    if kind is None and settings.method != UNKNOWN:
        kind = parse(settings.method).weights
    counts = [local_settings(settings, kind or "n_k").weight(size) for size in sizes]
    return tuple(count / sum(counts) for count in counts)
