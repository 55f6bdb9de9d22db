"""FedBN's script for digits: its functions ``train`` and ``communication``, in the order of its main part."""

from importlib import import_module
from typing import Any

import torch
from problem import Problem, State
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Marked(nn.Module):
    """A network whose BatchNorm tensors have "bn" in their names, by which the program knows them."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.norms = [name for name, m in network.named_modules() if isinstance(m, _BatchNorm)]

    def forward(self, images: Tensor) -> Tensor:
        """Return the network's logits."""
        logits: Tensor = self.network(images)
        return logits

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:  # type: ignore[override]
        """Return the network's tensors by their marked names."""
        return {
            f"bn.{name}" if name.rpartition(".")[0] in self.norms else name: values
            for name, values in self.network.state_dict().items()
        }


def run(problem: Problem, entry: str) -> list[State]:
    """Run its aggregation of the mode ``entry``; BatchNorm's tensors are the mean over the clients."""
    script: Any = import_module("federated.fed_digits")
    settings, count = problem.settings, problem.settings.clients
    script.client_num = count
    server: Any = Marked(problem.network())
    models: Any = [Marked(problem.network()) for _ in range(count)]
    states = []
    for _ in range(settings.rounds):
        optimizers = [torch.optim.SGD(model.parameters(), settings.lr) for model in models]
        for _ in range(settings.epochs):
            for k, model in enumerate(models):
                script.train(model, problem.loader(k), optimizers[k], nn.CrossEntropyLoss(), count, "cpu")
        args = type("Arguments", (), {"mode": entry})
        server, models = script.communication(args, server, models, [1 / count] * count)
        own = [model.state_dict() for model in models]
        mean = {
            name: torch.stack([state[name] for state in own]).mean(0) if "bn." in name else values.clone()
            for name, values in server.state_dict().items()
            if values.is_floating_point()
        }
        states.append({name.removeprefix("bn."): values for name, values in mean.items()})
    return states
