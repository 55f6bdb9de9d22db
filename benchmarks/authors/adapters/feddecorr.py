"""The programs of FedDecorr and of FedRS: a class per method, which has the clients' networks and loaders."""

import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from problem import Featured, Problem, State, plain
from programs import clipping_at
from torch import Tensor

CLASSES = {"feddecorr": "fedavg.FedAvg", "fedlc": "fedlogitcal.FedLogitCal", "fedrs": "fedrs.FedRS"}
CLASSES |= {"fedexp": "fedexp.FedExp", "fedsam": "fedsam.FedSAM"}
NAMES = {
    "decorr.beta": "feddecorr_coef",
    "lc.tau": "calibration_temp",
    "rs.alpha": "restricted_strength",
    "exp.epsilon": "eps",
    "sam.rho": "sam_rho",
}


class Network(Featured):
    """The problem's network as the program calls it."""

    def forward(self, images: Tensor, return_features: bool = False) -> Any:
        """Return the logits, and the features if they are asked for."""
        logits, features = super().forward(images)
        return (logits, features) if return_features else logits


def run(problem: Problem, entry: str) -> list[State]:
    """Run the method ``entry``."""
    settings, states = problem.settings, []
    module, _, name = CLASSES[entry].partition(".")
    approach: Any = import_module(f"approach.{module}")
    for one in {approach, import_module("approach.fedavg")}:
        one.compute_accuracy = lambda *_: (0.0, 0.0)
    args = SimpleNamespace(
        n_comm_round=settings.rounds, lr=settings.lr, rho=settings.momentum, epochs=settings.epochs,
        weight_decay=settings.weight_decay, print_interval=10**6, save_interval=10**6,
    )  # fmt: skip
    options = {name: problem.option(known) for known, name in NAMES.items() if known in settings.options}
    clients = range(settings.clients)
    federation = getattr(approach, name)(
        args, SimpleNamespace(**{"feddecorr": entry == "feddecorr", "feddecorr_coef": 0.0, **options}),
        logging.getLogger("program"), problem.participants, {k: Network(problem.network()) for k in clients},
        Network(problem.network()), {k: problem.loader(k) for k in clients}, None, [],
    )  # fmt: skip
    real = federation.global_aggregation

    def aggregated(networks: Any) -> None:
        real(networks)
        states.append(plain(federation.global_net.state_dict()))

    federation.global_aggregation = aggregated
    federation.run_fed()
    return states


class Swapped(Featured):
    """The problem's network as FedRS's program calls it."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features and the logits."""
        logits, features = super().forward(images)
        return features, logits


def repo(problem: Problem, entry: str) -> list[State]:
    """Run the class ``module.Class`` of the algorithms in FedRS's program."""
    settings, states = problem.settings, []
    module, _, name = entry.partition(".")
    algorithm: Any = import_module(f"algorithms.{module}")
    tools: Any = import_module("tools")
    tools.DataLoader = lambda samples, shuffle, **_: problem.loader_of(samples) if shuffle else samples
    args = SimpleNamespace(
        n_classes=10, batch_size=settings.batch_size, max_round=settings.rounds, lr=settings.lr,
        c_ratio=settings.participation, optimizer="SGD", momentum=settings.momentum, local_steps=None,
        weight_decay=settings.weight_decay, local_epochs=settings.epochs, cuda=False, max_grad_norm=0.0,
        alpha=problem.option("rs.alpha"), test_round=10**6,
    )  # fmt: skip
    held = {k: problem.loader(k).dataset for k in range(settings.clients)}
    for samples in held.values():
        samples.ys = samples.target  # type: ignore[attr-defined]
    tested = [problem.clients[0]]
    sets = {k: (samples, tested) for k, samples in held.items()}
    federation = getattr(algorithm, name)(sets, tested, Swapped(problem.network()), args)
    real, sampled = federation.update_global, iter(problem.participants)

    def updated(**given: Any) -> None:
        real(**given)
        states.append(plain(federation.model.state_dict()))

    federation.update_global = updated
    with (
        clipping_at(settings.clip),
        patch.object(np.random, "choice", lambda *_, **__: next(sampled)),
    ):
        federation.train()
    return states
