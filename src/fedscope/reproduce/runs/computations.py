"""Jobs side by side in processes of fixed threads, so that no bit depends on how many there are.

A worker whose parent is gone ends at once, so that a killed build leaves no process that locks a run.
"""

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from typing import Any

import torch

from fedscope.errors import UserError
from fedscope.parent import end_with_parent
from fedscope.process import set_up

Log = Callable[[str], None]


@dataclass(frozen=True)
class Computation:
    """A computation: ``work(*arguments, say)``, which writes its result to files."""

    title: str
    work: Callable[..., object]
    arguments: tuple[Any, ...]


def run_all(
    jobs: Sequence[Computation], *, workers: int, threads: int, device: str, say: Log
) -> dict[str, str]:
    """Do all jobs, ``workers`` at a time; return the faults by title.

    A job that fails with a UserError does not stop the others.
    """
    if workers == 1 or len(jobs) < 2:
        set_up(torch.device(device), threads)
        return {job.title: text for job in jobs if (text := _attempt(job, say)) is not None}
    context = multiprocessing.get_context("spawn")
    lines: SimpleQueue[str | None] = context.SimpleQueue()
    teller = threading.Thread(target=_tell, args=(lines, say), daemon=True)
    teller.start()
    faults: dict[str, str] = {}
    with ProcessPoolExecutor(
        min(workers, len(jobs)), context, initializer=_begin, initargs=(lines, device, threads)
    ) as pool:
        waiting: dict[Future[str | None], Computation] = {pool.submit(_attempt, job): job for job in jobs}
        try:
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    job = waiting.pop(done)
                    text = done.result()
                    if text is not None:
                        faults[job.title] = text
        except BrokenProcessPool as error:
            raise UserError(
                "a worker was killed, perhaps for want of memory; the same command continues, with fewer "
                "--workers if so"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    lines.put(None)
    teller.join()
    return faults


_lines: SimpleQueue[str | None] | None = None  # of a worker process


def _begin(lines: "SimpleQueue[str | None]", device: str, threads: int) -> None:
    global _lines
    _lines = lines
    end_with_parent()
    set_up(torch.device(device), threads)


def _attempt(job: Computation, say: Log | None = None) -> str | None:
    tell = say or _put
    try:
        job.work(*job.arguments, tell)
    except UserError as error:
        tell(f"{job.title}: {error}")
        return str(error)
    tell(f"{job.title}: done")
    return None


def _put(text: str) -> None:
    if _lines:
        _lines.put(text)


def _tell(lines: "SimpleQueue[str | None]", say: Log) -> None:
    while (text := lines.get()) is not None:
        say(text)
