"""A network with every contestant's product on it, and how a call is measured on a GPU."""

import copy
import gc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import curvature_peers as peers
import torch
from engine_networks import MeanCrossEntropy, built
from torch import Tensor

from fedscope.landscape import Hessian

Result = dict[str, Any]


class Bench:
    """A network with its samples, and every contestant's product on it."""

    def __init__(self, name: str, tiny: bool, device: torch.device):
        self.model, self.batches = built(name, tiny, device)
        self.loss_fn, self.device = MeanCrossEntropy(), device
        self.renew()
        self.n = self.ours.shape[0]

    def renew(self) -> None:
        """Give fedscope an operator that has kept no graphs yet."""
        self.ours = Hessian(self.model, self.loss_fn, self.batches)

    def own(self) -> Any:
        """Return a model for one contestant alone."""
        return copy.deepcopy(self.model).eval().requires_grad_(True)

    def pyhessian(self) -> Any:
        """Return PyHessian's object."""
        cuda = self.device.type == "cuda"
        return peers.pyhessian_engine(self.own(), self.loss_fn, self.batches, cuda=cuda)

    def products(self) -> dict[str, Callable[[], peers.Matvec]]:
        """Return what makes the contestants' products, and the gradient, which ignores the vector."""
        loss_fn, batches, cuda = self.loss_fn, self.batches, self.device.type == "cuda"
        return {
            "fedscope": lambda: self.ours.matvec,
            "gradient": lambda: self.gradient,
            "PyHessian": lambda: peers.pyhessian_product(self.own(), loss_fn, batches, cuda=cuda),
            "hessian-eigenthings": lambda: peers.eigenthings_product(self.own(), loss_fn, batches),
            "curvlinops": lambda: peers.curvlinops_product(self.own(), batches, loss_fn),
        }

    def gradient(self, _: Tensor) -> Tensor:
        """Return the mean loss's gradient."""
        found = torch.zeros(self.n, device=self.device)
        parameters = list(self.model.requires_grad_(True).parameters())
        for (inputs, targets), size in zip(self.batches, self.batches.sizes, strict=True):
            loss = self.loss_fn(self.model(inputs), targets) * (size / self.batches.samples)
            found += peers.flat(list(torch.autograd.grad(loss, parameters)))
        return found


def attempt(call: Callable[[], Result]) -> Result:
    """Return a contestant's result, or why it has none."""
    try:
        return call()
    except Exception as error:  # whatever a peer, or the GPU, raises
        failed = {"failed": f"{type(error).__name__}: {error}"[:300]}
    tidy()
    return failed


def tidy() -> None:
    """Give memory that is free back to the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def synchronize() -> None:
    """Wait for the GPU's work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a call returns, and its seconds to the end of the GPU's work."""
    synchronize()
    before = perf_counter()
    found = call()
    synchronize()
    return found, perf_counter() - before


def clocked(call: Callable[[], Any]) -> Result:
    """Return a call's seconds."""
    return {"seconds": timed(call)[1]}


def peak(call: Callable[[], Any]) -> tuple[int | None, Any]:
    """Return the bytes that a call adds to the GPU's largest allocation, None without one; and its result."""
    if not torch.cuda.is_available():
        return None, call()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = call()
    return torch.cuda.max_memory_allocated() - before, found
