"""The programs of FedSWA and of FedNSAM, one script with a worker's methods and rules of the server."""

import copy
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from problem import Problem, State
from programs import clipping_at
from torch import Tensor, nn

RULES = {"update_FedSWA": "apply_weights_avg", "update_NSAM": "apply_weights_avgACG"}


class Network(nn.Module):
    """The problem's network with the two methods by which the program reads and sets it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.network(images)
        return logits

    def get_weights(self) -> dict[str, Tensor]:
        """Return copies of all tensors."""
        return {name: values.detach().clone() for name, values in self.state_dict().items()}

    def set_weights(self, weights: dict[str, Tensor]) -> None:
        """Set all tensors."""
        self.load_state_dict(weights)


def run(problem: Problem, entry: str) -> list[State]:
    """Run the worker's method ``entry``, with a worker for every client, and the rule that belongs to it."""
    settings, states = problem.settings, []
    script = loaded(problem)
    model = Network(problem.network())
    workers = {k: worker(problem, script, k) for k in range(settings.clients)}
    rule = script[RULES.get(entry, "apply_weights_SCAF")]
    kept: Any = {}  # the control variate or the momentum
    for round, sampled in enumerate(problem.participants):
        lr, uploads = settings.lr * settings.lr_decay**round, []
        for k in sampled:
            weights = model.get_weights()
            more = () if entry == "update_FedSWA" else (copy.deepcopy(kept),)
            given = (weights, settings.epochs, k, *more, lr)
            with clipping_at(settings.clip):
                uploads.append(copy.deepcopy(getattr(workers[k], entry)(*given)))
        if entry == "update_FedSWA":
            rule(settings.clients, uploads, model)
        else:
            _, kept = rule(settings.clients, uploads, model, kept)
        states.append({name.removeprefix("network."): v for name, v in model.get_weights().items()})
    return states


def loaded(problem: Problem) -> dict[str, Any]:
    """Return the names of the script, without its main part."""
    settings = problem.settings
    ray = ModuleType("ray")
    ray.remote = lambda **_: lambda made: made  # type: ignore[attr-defined]
    sys.modules["ray"] = ray
    (path,) = Path().glob("main_*.py")
    share = len(problem.participants[0]) / settings.clients
    given = {"data_name": "problem", "CNN": "own", "num_workers": settings.clients, "selection": share}
    argv = [path.name, *(f"--{name}={value}" for name, value in given.items())]
    with patch.object(sys, "argv", argv):
        script = runpy.run_path(str(path))
    names = script["DataWorker"].update_FedSWA.__globals__  # of the functions, which a returned copy is not
    names.update(script)
    names.update(
        lr_decay=settings.lr_decay, batch_size=settings.batch_size, c_dict={}, ci_dict={}, alg="",
        selection=share, get_data_loader=lambda k, *_: problem.loader(k),
    )  # fmt: skip
    found: dict[str, Any] = names
    return found


def worker(problem: Problem, script: dict[str, Any], k: int) -> Any:
    """Return the program's worker with the problem's network."""
    made = script["DataWorker"](k, None, problem.settings.clients, 0.0, 0, "", "problem", 0.0, 0)
    made.model = Network(problem.network())
    return made
