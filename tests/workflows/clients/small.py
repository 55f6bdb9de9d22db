"""A small federated run that keeps every upload, and names for its parts."""

from collections.abc import Mapping

import torch
from torch import nn

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.workflows.sources.targets import Targets

SETTINGS = Settings(
    clients=3, rounds=2, epochs=1, model="mlp_digits", save_clients="all", keep_every=1, train_samples=300
)


def targets(run: RunFolder, which: str = "", **named: object) -> Targets:
    return Targets(run.root, (f"{run.name}{which}",), samples="all", threads=1, **named)  # type: ignore[arg-type]


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(
    registry: RunRegistry, name: str, changed: Mapping[str, object] = {}, options: Mapping[str, str] = {}
) -> RunFolder:
    """Return a run of the settings with some of them changed."""
    federation = prepare(SETTINGS.model_copy(update=dict(changed)), dict(options))
    found = open_run(federation, registry, name, resume=False)
    train(federation, found, lambda _: None)
    return found
