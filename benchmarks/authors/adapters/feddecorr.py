"""FedDecorr's program: a class per method, which has the clients' networks and loaders."""

import logging
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from problem import Featured, Problem, State, plain
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
