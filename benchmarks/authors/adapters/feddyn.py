"""FedDyn's program, and those of FedDC and MAN, which are written into it: one function per method."""

import inspect
from collections.abc import Callable
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from problem import Problem, State
from programs import clipping_at
from torch import Tensor, nn
from torch.utils.data import DataLoader

# which of the models that a method sets in a round is the server's, and how many it sets
PLACES = {"train_FedDyn": (2, 3), "train_FedDC": (2, 3)}
NAMES = {
    "mu": ("prox.mu",),
    "alpha_coef": ("dyn.alpha", "dc.alpha"),
    "rho": ("speed.rho", "sam.rho"),
    "mu_mean": ("man.zeta",),
    "global_learning_rate": ("scaffold.gamma",),
}


def run(problem: Problem, entry: str) -> list[State]:
    """Run ``module.function``, after a space the name of the program's own network if it is needed."""
    where, _, own = entry.partition(" ")
    module, _, name = where.rpartition(".")
    methods, general = import_module(module), import_module("utils_general")
    network = _own_network(problem, own) if own else problem.network
    place, count = PLACES.get(name, (0, 2))
    seen: list[Tensor] = []
    real: Callable[..., nn.Module] = methods.set_client_from_params

    def setting(model: nn.Module, values: Any) -> nn.Module:
        seen.append(torch.as_tensor(values).clone())
        return real(model, values)

    methods.set_client_from_params = setting  # type: ignore[attr-defined]
    general.data = SimpleNamespace(DataLoader=_loaders(problem))  # type: ignore[attr-defined]
    general.Dataset = lambda x, y, **_: list(zip(x, y, strict=True))  # type: ignore[attr-defined]
    method = getattr(methods, name)
    given = {**arguments(problem), "model_func": network, "init_model": network()}
    needed = [n for n in inspect.signature(method).parameters if n in given]
    draws = chain(map(_draw(problem), problem.participants), repeat(None))
    Path("Output/problem").mkdir(parents=True)
    with clipping_at(problem.settings.clip), patch.object(np.random, "uniform", lambda size: next(draws)):
        method(**{n: given[n] for n in needed})
    order = [n for n, _ in network().named_parameters()]
    shapes = dict(problem.module.named_parameters())
    return [_named(order, shapes, vector) for vector in seen[place::count]]


def arguments(problem: Problem) -> dict[str, Any]:
    """Return the values of the arguments that the program's functions have, by name."""
    settings = problem.settings
    x, y = ([part.numpy() for part in parts] for parts in zip(*problem.clients, strict=True))
    data = SimpleNamespace(
        n_client=settings.clients,
        clnt_x=x,
        clnt_y=y,
        tst_x=x[0],
        tst_y=y[0],
        name="problem",
        dataset="problem",
    )
    found: dict[str, Any] = {
        "data_obj": data, "act_prob": 0.5, "learning_rate": settings.lr, "batch_size": settings.batch_size,
        "epoch": settings.epochs, "com_amount": settings.rounds, "print_per": 10**6,
        "weight_decay": settings.weight_decay, "save_period": 10**6, "n_minibatch": problem.nominal_steps,
        "sch_step": 1, "sch_gamma": 1.0, "lr_decay_per_round": settings.lr_decay,
        "test_per": 10**6, "trial": True, "mu_mean": 0.0, "mu": 0.0, "rho": 0.0,
    }  # fmt: skip
    for name, options in NAMES.items():
        for option in options:
            if option in settings.options:
                found[name] = problem.option(option)
    adaptive = "asam.rho" in settings.options
    args = SimpleNamespace(
        add_reg=int("man.zeta" in settings.options), mu_mean=found["mu_mean"], save_period=10**6, swa=0,
        add_sam=0, rule="", dataset_name="", search_param=found["rho"],
        opt_method="ASAM" if adaptive else "SAM",
    )  # fmt: skip
    return {**found, "args": args}


def _own_network(problem: Problem, name: str) -> Callable[[], nn.Module]:
    """Return what makes the program's own network, with the problem's initial weights."""

    def network() -> nn.Module:
        made: nn.Module = import_module("utils_models").client_model(name)
        made.load_state_dict(problem.module.state_dict())
        return made

    return network


def _loaders(problem: Problem) -> Callable[..., Any]:
    """Return what stands for DataLoader: the problem's batches where the program shuffles."""

    def loader(dataset: Any, batch_size: int, shuffle: bool) -> Any:
        return problem.loader_of(dataset) if shuffle else DataLoader(dataset, batch_size)

    return loader


def _draw(problem: Problem) -> Callable[[list[int]], Any]:
    """Return what makes of participants the uniform draws by which the program chooses them."""
    return lambda sampled: np.array([float(k not in sampled) for k in range(problem.settings.clients)])


def _named(order: list[str], shapes: dict[str, Any], vector: Tensor) -> State:
    pieces = vector.split([shapes[name].numel() for name in order])
    return {name: piece.reshape(shapes[name].shape) for name, piece in zip(order, pieces, strict=True)}
