"""The processes that share a run: rank 0 is the command's own, the others are its children, or torchrun's.

Everything goes through one process group: gloo, or NCCL where every worker has a GPU to itself. A worker that
dies closes its connections, so that whoever waits for it gets an error at once.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import sleep

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessContext, start_processes

from fedscope.errors import UserError

PATIENCE = timedelta(hours=6)  # for a worker that is alive but silent; a dead one is noticed at once


class WorkerLost(UserError):
    """A worker process ended while others still needed it."""


@dataclass(frozen=True)
class Workers:
    """This process's place among the workers; one process alone is rank 0 of 1 and never waits."""

    rank: int = 0
    size: int = 1
    carrier: torch.device | None = None  # where messages lie; None: where the sender has them

    def share(self, tensor: Tensor) -> None:
        """Give every worker rank 0's content of ``tensor``."""
        if self.size > 1:
            with _lost():
                message = tensor.to(self.carrier)
                dist.broadcast(message, 0)
            tensor.copy_(message)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of all workers' tensors. Where each entry is zero but at one worker it is exact."""
        if self.size > 1:
            with _lost():
                message = tensor.to(self.carrier)
                dist.all_reduce(message)
            return message
        return tensor

    def send(self, tensor: Tensor, rank: int) -> None:
        """Send a tensor to worker ``rank``, which receives it."""
        with _lost():
            dist.send(tensor.to(self.carrier).contiguous(), rank)

    def receive(self, shape: tuple[int, ...], dtype: torch.dtype, rank: int) -> Tensor:
        """Return the tensor that worker ``rank`` sends."""
        tensor = torch.empty(shape, dtype=dtype, device=self.carrier)
        with _lost():
            dist.recv(tensor, rank)
        return tensor


def under_torchrun() -> bool:
    """Say whether torchrun, or another launcher of its kind, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined(device: torch.device) -> Iterator[Workers]:
    """Join the group that torchrun has prepared."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with _group(rank, size, device, None) as workers:
        yield workers


@contextmanager
def started(size: int, device: torch.device, work: Callable[..., None], *args: object) -> Iterator[Workers]:
    """Run ``work(workers, *args)`` in ``size`` − 1 child processes and yield this process's place.

    ``work`` must be importable. Leaving the block waits for the children, or ends them if it raised.

    Raises:
        WorkerLost: a child died; the message says which and how.
    """
    if size == 1:
        yield Workers()
        return
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    children = start_processes(
        _child, (size, store.port, device, work, args), size - 1, join=False, start_method="spawn"
    )
    try:
        while not store.check([f"ready {rank}" for rank in range(1, size)]):
            if any(child.exitcode is not None for child in children.processes):
                raise WorkerLost("a worker ended before it was ready")
            sleep(0.02)
        with _group(0, size, device, store) as workers:
            yield workers
            for child in children.processes:
                child.join()
    except WorkerLost as error:
        raise WorkerLost(f"{_death(children) or error}; continue with --resume") from error
    finally:
        for child in children.processes:
            child.kill()
            child.join()


def _child(
    index: int,
    size: int,
    port: int,
    device: torch.device,
    work: Callable[..., None],
    args: tuple[object, ...],
) -> None:
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
    store.set(f"ready {index + 1}", "")
    try:
        with _group(index + 1, size, device, store) as workers:
            work(workers, *args)
    except WorkerLost:
        os._exit(1)  # rank 0 knows more, and says it


@contextmanager
def _group(rank: int, size: int, device: torch.device, store: TCPStore | None) -> Iterator[Workers]:
    alone = False
    if device.type == "cuda" and device.index is None:  # the workers of a machine take its GPUs in turn
        count = torch.cuda.device_count()
        alone = int(os.environ.get("LOCAL_WORLD_SIZE", size)) <= count
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)) % count)
    with _lost():
        dist.init_process_group(
            "nccl" if alone else "gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE
        )
    try:
        yield Workers(rank, size, device if alone else torch.device("cpu"))
    finally:
        dist.destroy_process_group()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what gloo and NCCL raise when a peer is gone
        raise WorkerLost(f"a worker is gone ({str(error).splitlines()[0]})") from error


def _death(children: ProcessContext) -> str | None:
    """Describe the first child that ended badly, waiting a moment for its exit code."""
    for _ in range(50):
        for rank, child in enumerate(children.processes, 1):
            if child.exitcode:
                how = (
                    f"signal {signal.Signals(-child.exitcode).name}"
                    if child.exitcode < 0
                    else f"code {child.exitcode}"
                )
                return f"worker {rank} died ({how})"
        sleep(0.1)
    return None
