"""The processes that share a run: rank 0 is the command's own, the others are its children, or torchrun's.

All messages go through one gloo process group and are CPU tensors, also when the workers compute on GPUs,
which they may then share. A worker that dies closes its connections, so that a process that waits for it
gets an error at once; rank 0 also watches its children, in case it waits for something else.
"""

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from time import sleep

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.multiprocessing.spawn import ProcessContext, start_processes

from fedscope.errors import UserError
from fedscope.process import set_up
from fedscope.storage import open_regular, remove

PATIENCE = timedelta(hours=6)  # for a worker that is alive but silent
START = timedelta(minutes=1)  # for the first word between processes that are there
_MENDABLE = "mendable fault of worker "  # key of a UserError's text
GRACE = 10.0  # seconds between a child's death and the end of a rank 0 that has not noticed


def packed(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([_bytes(tensor.detach().cpu().contiguous()) for tensor in tensors])


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor; of one number PyTorch may have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def unpack(message: Tensor, tensors: Sequence[Tensor]) -> None:
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    for tensor, piece in zip(tensors, message.split(sizes), strict=True):
        # a piece may begin where numbers of its kind may not
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


def size(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class WorkerLost(UserError):
    """A worker process ended while others still needed it."""


@dataclass(frozen=True)
class Workers:
    """This process's place among the workers; one process alone is rank 0 of 1 and never waits."""

    rank: int = 0
    size: int = 1

    def share(self, *tensors: Tensor) -> None:
        if self.size > 1:
            message = packed(tensors)
            with _lost():
                dist.broadcast(message, 0)
            if self.rank:
                unpack(message, tensors)

    def total(self, tensor: Tensor) -> Tensor:
        """Return, on rank 0, the sum of all workers' tensors, which is exact where one alone is not zero.

        Another worker gets its own back, and goes on as soon as rank 0 has taken it.
        """
        sum_ = tensor.cpu()
        if self.rank:
            self.send(0, sum_)
        else:
            for rank in range(1, self.size):
                other = torch.empty_like(sum_)
                self.receive(rank, other)
                sum_ = sum_ + other
        return sum_

    def send(self, rank: int, *tensors: Tensor) -> None:
        message = packed(tensors)
        with _lost():
            dist.send(message, rank)

    def receive(self, rank: int, *tensors: Tensor) -> None:
        message = torch.empty(size(tensors), dtype=torch.uint8)
        with _lost():
            dist.recv(message, rank)
        unpack(message, tensors)


def under_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def place() -> int:
    """Return this process's number among those that torchrun started on this machine; 0 without it."""
    return int(os.environ.get("LOCAL_RANK", 0))


@contextmanager
def joined() -> Iterator[Workers]:
    """Join the group that torchrun has prepared."""
    with _group(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), None) as workers:
        yield workers


@contextmanager
def started(
    size: int, device: torch.device, threads: int, work: Callable[..., None], *args: object
) -> Iterator[Workers]:
    """Run ``work(workers, *args)`` in ``size`` − 1 child processes and yield this process's place.

    ``work`` must be importable. Leaving the block waits for the children, or ends them if it raised.
    """
    if size == 1:
        yield Workers()
        return
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=START)
    home = (os.getpid(), store.port, size, device, threads)
    children = start_processes(_child, (home, work, args), size - 1, join=False, start_method="spawn")
    finished = threading.Event()
    # a connection of its own: while this process waits in the store, nobody else can ask by the same one
    watching = TCPStore("127.0.0.1", store.port, is_master=False, timeout=START)
    watch = threading.Thread(target=_watch, args=(children, watching, finished), daemon=True)
    watch.start()
    try:
        with _group(0, size, store) as workers:
            yield workers
            for child in children.processes:
                wait([child.sentinel])  # not `join`: two threads at once may read a wrong exit code
    except WorkerLost as error:
        finished.set()
        watch.join()
        raise _death(children, store, patience=GRACE) or error from error
    finally:
        finished.set()
        for child in children.processes:
            child.kill()
        watch.join()  # it asks the store, which ends with this block
        for child in children.processes:
            child.join()
        for file in children.error_files:
            remove(Path(file), below=None, missing_ok=True)


def _child(
    index: int,
    home: tuple[int, int, int, torch.device, int],
    work: Callable[..., None],
    args: tuple[object, ...],
) -> None:
    parent, port, size, device, threads = home
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C, or the parent's death: end at once
    if os.getppid() != parent:
        os._exit(1)
    set_up(device, threads, place=index + 1)
    try:
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=START)
        with _group(index + 1, size, store) as workers:
            work(workers, *args)
    except WorkerLost:
        os._exit(1)  # rank 0 knows the cause, and prints it
    except UserError as error:
        store.set(f"{_MENDABLE}{index + 1}", str(error))
        raise


@contextmanager
def _group(rank: int, size: int, store: TCPStore | None) -> Iterator[Workers]:
    with _lost():
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield Workers(rank, size)
    finally:
        dist.destroy_process_group()
        # Whatever refers to the group and waits for the collector keeps its threads alive, and a thread that
        # frees a tensor while Python ends aborts the process.
        gc.collect()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # what gloo raises when a peer is gone
        raise WorkerLost(f"a worker is gone ({str(error).splitlines()[0]})") from error


def _watch(children: ProcessContext, store: TCPStore, finished: threading.Event) -> None:
    """End this process if a child has died and it does not notice, such as while the group forms."""
    while not finished.is_set():
        wait(children.sentinels, timeout=1.0)
        error = _death(children, store)
        if error is not None:
            if not finished.wait(GRACE):
                print(f"Error: {error}", file=sys.stderr, flush=True)
                for child in children.processes:
                    child.kill()
                os._exit(2)
            return
        if all(child.exitcode == 0 for child in children.processes):
            return


def _death(children: ProcessContext, store: TCPStore, patience: float = 0.0) -> Exception | None:
    for _ in range(1 + int(10 * patience)):
        for rank, (child, file) in enumerate(zip(children.processes, children.error_files, strict=True), 1):
            if child.exitcode is not None and child.exitcode < 0:
                name = signal.Signals(-child.exitcode).name
                return WorkerLost(f"worker {rank} died (signal {name}); continue with --resume")
            if child.exitcode and store.check([f"{_MENDABLE}{rank}"]):
                return UserError(store.get(f"{_MENDABLE}{rank}").decode())
            if child.exitcode and Path(file).exists() and Path(file).stat().st_size:
                with open_regular(file) as handle:  # written by our own child
                    return RuntimeError(f"worker {rank} failed:{pickle.load(handle)}")
        if patience:
            sleep(0.1)
    return None
