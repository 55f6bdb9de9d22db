"""FedAlign's program: its classes ``Client`` and ``Server`` of a method, and its networks of basic blocks.

Clients and server are each a process there; here what they hand over is copied.
"""

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from problem import Problem, State
from torch import Tensor, nn

NETWORKS = {"gradaug": "resnet_gradaug", "stochdepth": "resnet_stochdepth", "fedalign": "resnet_fedalign"}
NAMES = {  # its argument → fedscope's option
    "prox.mu": "mu", "moon.mu": "mu", "fedalign.mu": "mu", "mixup.gamma": "gamma", "sd.keep": "stoch_depth",
    "gradaug.mu": "mult", "gradaug.n": "num_subnets", "gradaug.width": "width", "fedalign.width": "width",
}  # fmt: skip


def run(problem: Problem, entry: str) -> list[State]:
    """Run the module ``entry`` of its ``methods``."""
    module = import_module(f"methods.{entry}")
    settings, states = problem.settings, []
    args = arguments(problem)
    shared: dict[str, Any] = {
        "train_data": {k: problem.loader(k) for k in range(settings.clients)},
        "test_data": dict.fromkeys(range(settings.clients)), "device": 0, "num_classes": 10,
        "model_type": _network(problem, NETWORKS.get(entry, "resnet")), "save_path": ".",
        "width_range": [args.width, 1.0], "resolutions": _sides(problem),
    }  # fmt: skip
    server = module.Server(shared, args)
    threads = range(args.thread_number)
    clients = [
        module.Client({**shared, "client_map": [[sampled[t]] for sampled in problem.participants]}, args)
        for t in threads
    ]
    for part in (server, *clients):
        part.test = lambda: 0.0
        part.log_info = lambda *_: None
    with _draws_of(problem):
        outputs = server.start()
        for _ in range(settings.rounds):
            uploads = [client.run(copy.deepcopy(out)) for client, out in zip(clients, outputs, strict=True)]
            outputs = copy.deepcopy(server.run([u for several in uploads for u in copy.deepcopy(several)]))
            theirs = server.model.state_dict()
            states.append({name: theirs[_renamed(name, theirs)].clone() for name in _floats(problem)})
    return states


def arguments(problem: Problem) -> Any:
    """Return the program's arguments for the problem's settings and options."""
    settings = problem.settings
    found: dict[str, Any] = {
        "lr": settings.lr, "wd": settings.weight_decay, "epochs": settings.epochs, "width": 1.0,
        "batch_size": settings.batch_size, "client_number": settings.clients, "mu": 0.0, "mult": 1.0,
        "client_sample": 1.0, "thread_number": len(problem.participants[0]), "save_client": False,
        "num_subnets": 1,
    }  # fmt: skip
    for option, name in NAMES.items():
        if option in settings.options:
            found[name] = problem.option(option)
    found["num_subnets"] = int(found["num_subnets"])
    return SimpleNamespace(**found)


def _network(problem: Problem, module: str) -> Callable[..., nn.Module]:
    """Return what makes the program's network of three basic blocks, with the problem's initial weights."""
    networks = import_module(f"models.{module}")
    ours = problem.module.state_dict()

    def network(classes: int, **options: Any) -> nn.Module:
        made: nn.Module = networks.ResNet(networks.BasicBlock, [1, 1, 1], classes, **options)
        theirs = made.state_dict()
        made.load_state_dict({**theirs, **{_renamed(name, theirs): ours[name] for name in _floats(problem)}})
        return made

    return network


def _floats(problem: Problem) -> list[str]:
    return [name for name, values in problem.module.state_dict().items() if values.is_floating_point()]


def _renamed(name: str, theirs: dict[str, Tensor]) -> str:
    """Return the program's name of a tensor of fedscope's network."""
    for old, new in (
        ("stem.0.", "conv1."), ("stem.1.", "bn1."), ("branch.0.", "conv1."), ("branch.1.", "bn1."),
        ("branch.3.", "conv2."), ("branch.4.", "bn2."), ("shortcut.", "downsample."), ("head.0.", "p1."),
        ("head.2.", "p2."),
    ):  # fmt: skip
        name = name.replace(old, new)
    slimmable = name.replace(".running_", ".bn.running_")
    return name if name in theirs else slimmable


def _sides(problem: Problem) -> list[int]:
    """Return the sides that GradAug chooses from; the first is all that FedAlign has."""
    return [8, *map(int, str(problem.settings.options.get("gradaug.resolutions", "8")).split(","))][1:]


@contextmanager
def _draws_of(problem: Problem) -> Iterator[None]:
    """Let a program draw what fedscope drew."""
    draws = iter(problem.drawn)
    sides = _sides(problem)
    queue: list[Any] = []

    def uniform(_low: float, _high: float, _count: int) -> list[float]:
        widths, chosen = zip(*next(draws), strict=True)
        queue.extend(sides.index(side) for side in chosen)
        return list(widths[:-1])

    def beta(_a: float, _b: float) -> float:
        share, order = next(draws)
        queue.append(order)
        return float(share)

    real = torch.randperm

    def permutation(count: int, generator: torch.Generator | None = None) -> Tensor:
        return real(count, generator=generator) if generator else queue.pop(0)

    def gates() -> Iterator[Any]:
        for step in draws:
            yield from map(int, step)

    gate = gates()
    changes: dict[str, list[tuple[Any, str, Any]]] = {
        "gradaug": [(np.random, "uniform", uniform), (random, "randint", lambda *_: queue.pop(0))],
        "mixup": [(np.random, "beta", beta), (torch, "randperm", permutation)],
        "stochdepth": [(np.random, "binomial", lambda *_: next(gate))],
    }
    with ExitStack() as stack:
        for change in changes.get(problem.settings.method, ()):
            stack.enter_context(patch.object(*change))
        yield
