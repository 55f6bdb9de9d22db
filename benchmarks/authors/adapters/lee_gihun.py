"""The programs of FedNTD and FedSOL: one server class per method, and the same base class in both."""

import copy
from importlib import import_module
from typing import Any

import torch
from problem import Problem, State
from torch.optim.lr_scheduler import StepLR

NAMES = {
    "tau": ("ntd.tau",),
    "beta": ("ntd.beta",),
    "lam": ("fedcurv.lambda",),
    "avgm_beta": ("avgm.beta",),
    "rho": ("sol.rho", "sam.rho", "asam.rho"),
    "mu": ("prox.mu", "moon.mu"),
    "alpha": ("dyn.alpha",),
}


class Parameters(dict[str, Any]):
    """The program's parameters of a method, which it reads as items and as attributes."""

    __getattr__ = dict.__getitem__


def run(problem: Problem, entry: str) -> list[State]:
    """Run the server class of the method ``entry`` in ``algorithms``."""
    settings, states = problem.settings, []
    module = problem.network()
    optimizer = torch.optim.SGD(
        module.parameters(), settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    server = import_module(f"algorithms.{entry}").Server(
        parameters(problem, entry), module, data(problem), optimizer,
        StepLR(optimizer, step_size=1, gamma=settings.lr_decay), n_rounds=settings.rounds,
        sample_ratio=settings.participation, local_epochs=settings.epochs, device="cpu",
    )  # fmt: skip
    problem.taken.clear()  # FedNova's constructor counts the batches by taking them
    base: Any = import_module("algorithms.BaseServer")
    base.get_round_personalized_acc = lambda *_: {}

    def keep(*_: object) -> None:
        states.append(copy.deepcopy(module.state_dict()))

    def keep_global(results: dict[str, Any], _round: int) -> None:
        if any("Global" in name for name in results):
            keep()

    server._client_sampling = lambda round: problem.participants[round]
    server._wandb_logging = keep
    server._print_stats = lambda *_: None
    server._print_stats_with_logging = keep_global
    server.client._get_local_stats = lambda: {}
    if entry == "fedcurv":
        _take_in_order(problem, server.client)
    server.run()
    return states


def parameters(problem: Problem, entry: str) -> Parameters:
    """Return the program's parameters for the method's options."""
    options = problem.settings.options
    found = Parameters(
        size=10**6, nova_ccvr=False, perturb_head=True, perturb_body=True, adaptive="asam.rho" in options
    )
    for name, known in NAMES.items():
        for option in known:
            if option in options:
                found[name] = problem.option(option)
    return found


def data(problem: Problem) -> dict[str, Any]:
    """Return the clients' loaders as the two programs have them."""
    clients, sizes = range(problem.settings.clients), problem.sizes()
    return {
        "num_classes": 10,
        "global": {"test": [problem.clients[0]]},
        "local": {k: {"datasize": sizes[k], "train": problem.loader(k)} for k in clients},
        "local_sizes": dict(enumerate(sizes)),
        "partition_map": dict.fromkeys(clients),
    }


def _take_in_order(problem: Problem, client: Any) -> None:
    """Let the Fisher information be taken over batches in the order of the rows, as fedscope takes it."""
    real = client.upload_local_fisher

    def uploaded() -> Any:
        inputs, labels = problem.clients[client.trainloader.client]
        size = problem.settings.batch_size
        client.trainloader = list(zip(inputs.split(size), labels.split(size), strict=True))
        return real()

    client.upload_local_fisher = uploaded
