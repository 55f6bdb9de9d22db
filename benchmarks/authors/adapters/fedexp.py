"""FedExP's script, run whole: its data and network are the problem's, its strengths patched in the table."""

import runpy
import sys
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from problem import Problem, State
from programs import clipping_at
from torch import Tensor
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
