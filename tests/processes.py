"""Commands in processes of their own that start at once: they are forked from one that has imported torch.

A command that is killed, stopped or watched from outside needs a process; torch's import, seconds of
processor time, is not what such a test is about.
"""

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from torch.multiprocessing.spawn import ProcessContext, start_processes

from fedscope.cli.main import run
from fedscope.cli.terminal import pulse
from fedscope.federated.parallel import workers

pulse.EVERY = 1e8  # else a command's log would depend on how long it takes

PRELOADED = [
    *("tests.processes", "fedscope.workflows.train.train_runs", "fedscope.reproduce.build"),
    *("fedscope.cli.hessian", "fedscope.cli.plot_landscape", "rich_click", "rich.live"),
    *("torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp"),
    "matplotlib.backends.backend_pdf",
]
PATIENCE = 120  # seconds; what takes longer hangs


def processes() -> ForkServerContext:
    """Return a context whose children start in milliseconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def ranks(world: int, work: Callable[..., None], *arguments: object) -> None:
    """Call ``work(rank, *arguments)`` in ``world`` processes, and wait for them."""
    processes()
    start_processes(work, arguments, nprocs=world, start_method="forkserver")


def start_workers(_: object, given: tuple[object, ...], count: int, **_options: object) -> ProcessContext:
    """Start a run's workers, in the place of PyTorch's function."""
    processes()
    found: ProcessContext = start_processes(_worker, given, count, join=False, start_method="forkserver")
    return found


def _worker(index: int, home: tuple[object, ...], *given: object) -> None:
    """Be a worker: its parent is the process that forked it."""
    workers._child(index, (os.getppid(), *home[1:]), *given)  # type: ignore[arg-type]


def nothing_waits_for_the_disk() -> None:
    """No test cuts the power, and thousands of small writes would wait for seconds each minute."""
    os.fsync = lambda fd: None


@dataclass(frozen=True)
class Command:
    """A running ``fedscope``, the leader of a session, and what it says on standard error."""

    process: BaseProcess
    errors: TextIOWrapper

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.process.exitcode

    def finish(self) -> tuple[int, str]:
        """Return its exit code and the rest of its standard error."""
        errors = self.errors.read()
        self.process.join(PATIENCE)
        assert self.code is not None
        return self.code, errors


@contextmanager
def started(*arguments: str) -> Iterator[Command]:
    """Start ``fedscope`` in this folder and environment; kill it, if it still runs, at the end."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = processes().Process(target=_run, args=(arguments, sender, str(Path.cwd()), dict(os.environ)))
    process.start()
    sender.close()
    with receiver, os.fdopen(os.dup(receiver.fileno()), encoding="utf-8") as errors:
        try:
            yield Command(process, errors)
        finally:
            process.kill()
            process.join()


def finished(*arguments: str) -> tuple[int, str]:
    """Run ``fedscope`` to its end; return its exit code and standard error."""
    with started(*arguments) as command:
        return command.finish()


def _run(arguments: tuple[str, ...], errors: Connection, folder: str, environment: dict[str, str]) -> None:
    gc.freeze()  # what is imported stays
    nothing_waits_for_the_disk()
    os.setsid()
    os.dup2(errors.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    errors.close()
    # the inherited ones remember whether they can seek
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    run(arguments)
