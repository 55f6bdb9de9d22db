"""FedGF's program, a copy of FedLab with further methods: a server handler and a trainer of all clients."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from problem import Problem, State
from torch import Tensor

OPTIMIZERS = {"fedadagrad": "adagrad", "fedadam": "adam", "fedyogi": "yogi"}


def run(problem: Problem, entry: str) -> list[State]:
    """Run ``module.Server,Trainer`` of its algorithms."""
    settings, states = problem.settings, []
    module, _, names = entry.partition(".")
    algorithms: Any = import_module(f"fedlab.contrib.algorithm.{module}")
    server_name, trainer_name = names.split(",")
    shared = problem.network()
    handler = getattr(algorithms, server_name)(
        shared, settings.rounds, settings.clients, settings.participation, cuda=False
    )
    handler.device = "cpu"
    more = [problem.option("gf.rho")] if "gf.rho" in settings.options else []
    trainer = getattr(algorithms, trainer_name)(shared, settings.clients, *more, cuda=False)
    trainer.dataset = SimpleNamespace(get_dataloader=lambda k, _: problem.loader(k))
    trainer.setup_optim(settings.epochs, settings.batch_size, settings.lr, settings.weight_decay)
    sampled: list[int] = []
    if more:
        options = (problem.option(f"gf.{name}") for name in ("global_rho", "threshold", "window"))
        handler.setup_optim(*options)
    else:
        handler.setup_optim(SimpleNamespace(last_sampled=property), _arguments(problem))
        handler.sampler = SimpleNamespace()
    for sampled in problem.participants:
        if not more:
            handler.sampler.last_sampled = (torch.tensor(sampled), None)
        trainer.local_process(handler.downlink_package, sampled)
        for package in trainer.uplink_package:
            handler.load(package)
        vector: Tensor = handler.model_parameters
        states.append(problem.named(vector.clone()))
    return states


def _arguments(problem: Problem) -> Any:
    """Return the strengths of its server optimizers."""
    name = problem.settings.method.removeprefix("fed")

    def option(key: str) -> float:
        return float(problem.settings.options.get(f"{name}.{key}", 0.0))

    return SimpleNamespace(
        glr=option("gamma"), beta1=option("beta1"), beta2=option("beta2"), tau=option("eps"),
        option=OPTIMIZERS[problem.settings.method], weights=torch.tensor(problem.sizes()).double(),
    )  # fmt: skip
