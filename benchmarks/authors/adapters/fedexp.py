"""The scripts of FedExP and of MOON, run whole, with the problem's data and network.

FedExP's strengths stand in its lines; they are replaced in the table.
"""

import logging
import random
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from problem import Featured, Problem, State, plain
from programs import clipping_at
from torch import Tensor, nn
from torch.utils.data import DataLoader


def run(problem: Problem, entry: str) -> list[State]:
    """Run its algorithm ``entry``."""
    settings, seen = problem.settings, list[Tensor]()
    data, models = ModuleType("util_data"), ModuleType("util_models")
    sets = [list(zip(*client, strict=True)) for client in problem.clients]
    data.get_dataset = lambda *_: (sets, sets[0])  # type: ignore[attr-defined]
    models.get_model = lambda *_: problem.network()  # type: ignore[attr-defined]
    sys.modules.update({"util_data": data, "util_models": models})
    import util_general  # type: ignore[import-not-found]

    def loader(dataset: Any, batch_size: int, shuffle: bool = False) -> Any:
        return problem.loader_of(dataset) if shuffle else DataLoader(dataset, batch_size)

    real = util_general.vector_to_parameters

    def setting(vector: Tensor, parameters: Any) -> None:
        seen.append(vector.clone())
        real(vector, parameters)

    util_general.DataLoader = loader
    util_general.vector_to_parameters = setting
    sampled = iter(problem.participants)
    flags = {
        "seed": 0, "algorithm": entry, "dataset": "EMNIST", "model": "own", "num_clients": settings.clients,
        "num_participating_clients": len(problem.participants[0]), "num_rounds": settings.rounds - 1,
        "alpha": 0,
    }  # fmt: skip
    argv = ["main.py", *(f"--{name}={value}" for name, value in flags.items())]
    with (
        patch.object(sys, "argv", argv),
        patch.object(np.random, "choice", lambda *_, **__: np.array(next(sampled))),
        clipping_at(settings.clip),
    ):
        runpy.run_path("main.py")
    averages = 2 if entry.endswith("exp)") or entry == "fedexp" else 1  # it evaluates the mean of two models
    return [problem.named(vector) for vector in seen[::averages]]


class Triple(Featured):
    """The problem's network as MOON's program calls it."""

    def forward(self, images: Tensor) -> Any:
        """Return what its body, its projection head and its classifier give; here there is no head."""
        logits, features = super().forward(images)
        return features, features, logits


def moon(problem: Problem, entry: str) -> list[State]:
    """Run MOON's script with the algorithm ``entry``."""
    settings, states = problem.settings, list[State]()
    samples = {k: problem.loader(k).dataset for k in range(settings.clients)}

    def accuracy(model: nn.Module, _: Any, get_confusion_matrix: bool = False, device: Any = None) -> Any:
        if not get_confusion_matrix and not isinstance(model, nn.DataParallel):
            states.append(plain(model.state_dict()))  # clients' networks are wrapped, the server's is not
        return (0.0, None, 0.0) if get_confusion_matrix else (0.0, 0.0)

    model, utils = ModuleType("model"), ModuleType("utils")
    model.ModelFedCon = lambda *_: Triple(problem.network())  # type: ignore[attr-defined]
    for name, value in {
        "mkdirs": lambda path: Path(path).mkdir(parents=True, exist_ok=True),
        "partition_data": lambda *_, **__: (None, range(10), None, None, samples, None),
        "get_dataloader": lambda *given: (problem.loader_of(given[4]) if given[4:] else [], [], [], []),
        "compute_accuracy": accuracy,
    }.items():
        setattr(utils, name, value)
    sys.modules.update({"model": model, "utils": utils})
    flags = {
        "alg": entry, "dataset": "cifar10", "batch-size": settings.batch_size, "lr": settings.lr,
        "epochs": settings.epochs, "n_parties": settings.clients, "comm_round": settings.rounds,
        "reg": settings.weight_decay, "device": "cpu", "mu": problem.option("moon.mu"),
        "temperature": problem.option("moon.tau"), "sample_fraction": settings.participation,
    }  # fmt: skip
    sampled = iter(problem.participants)
    argv = ["main.py", *(f"--{name}={value}" for name, value in flags.items())]
    with (
        patch.object(sys, "argv", argv),
        patch.object(random, "sample", lambda *_: next(sampled)),
        logging_kept(),
    ):
        runpy.run_path("main.py", run_name="__main__")
    return states


@contextmanager
def logging_kept() -> Iterator[None]:
    """Give back the root logger's handlers and level, which the script replaces."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
