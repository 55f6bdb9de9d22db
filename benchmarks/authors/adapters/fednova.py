"""FedNova's program: its optimizer, and its ``train``; each worker is a thread, not a process."""

import sys
from importlib import import_module
from threading import Barrier, Thread
from typing import Any
from unittest.mock import patch

import torch
from problem import Problem, State
from torch import Tensor, nn


def run(problem: Problem, entry: str) -> list[State]:
    """Run its optimizer class ``entry`` in every client."""
    settings, count = problem.settings, problem.settings.clients
    gone = import_module("torch.optim.optimizer")  # a name of older PyTorch, for a missing argument
    with patch.object(gone, "required", None, create=True), patch.object(sys, "argv", ["train"]):
        script: Any = import_module("train_LocalSGD")
    script.args.out_fname = "log"
    shared = Summed(count)
    states: list[State] = []
    failures: list[BaseException] = []

    def worker(rank: int) -> None:
        shared.ranks[id_of_thread()] = rank
        model = problem.network()
        mu = problem.option("prox.mu") if "prox.mu" in settings.options else 0
        optimizer = getattr(script, entry)(
            model.parameters(), lr=settings.lr, gmf=0, mu=mu,
            ratio=problem.sizes()[rank] / sum(problem.sizes()), momentum=settings.momentum, nesterov=False,
            weight_decay=settings.weight_decay,
        )  # fmt: skip
        for _ in range(settings.rounds):
            for epoch in range(settings.epochs):
                script.train(model, nn.CrossEntropyLoss(), optimizer, problem.loader(rank), epoch)
            optimizer.average()
            if rank == 0:
                states.append({name: values.clone() for name, values in model.state_dict().items()})

    def guarded(rank: int) -> None:
        try:
            worker(rank)
        except BaseException as error:
            failures.append(error)
            shared.barrier.abort()

    with patch.object(torch.distributed, "all_reduce", shared.all_reduce):
        threads = [Thread(target=guarded, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    return states


def id_of_thread() -> int:
    """Return what tells this thread from the others."""
    return int(import_module("threading").get_ident())


class Summed:
    """A sum over the threads in the order of their ranks."""

    def __init__(self, count: int):
        self.barrier, self.ranks = Barrier(count), dict[int, int]()
        self.parts: list[Tensor] = [torch.empty(0)] * count

    def all_reduce(self, tensor: Tensor, op: object = None) -> None:
        """Put the sum into every thread's tensor."""
        self.parts[self.ranks[id_of_thread()]] = tensor.clone()
        self.barrier.wait()
        total = torch.stack(self.parts).sum(0)
        self.barrier.wait()
        tensor.copy_(total)
