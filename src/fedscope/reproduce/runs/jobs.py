"""Jobs side by side in processes of fixed threads, so that no bit depends on how many there are.

A worker whose parent is gone ends at once: a killed build leaves nothing behind that holds a run.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from typing import Any

import torch

from fedscope.errors import UserError
from fedscope.process import set_up

Log = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Something to compute: ``work(*arguments, say)``, which leaves its result in files."""

    title: str
    work: Callable[..., object]
    arguments: tuple[Any, ...]


def run_all(jobs: Sequence[Job], *, workers: int, threads: int, device: str, say: Log) -> dict[str, str]:
    """Do all jobs, ``workers`` at a time; return what went wrong, by title.

    A job that fails for a reason that the user can mend does not stop the others.
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
        waiting: dict[Future[str | None], Job] = {pool.submit(_attempt, job): job for job in jobs}
        try:
            while waiting:
                for done in wait(waiting, return_when=FIRST_COMPLETED).done:
                    job = waiting.pop(done)
                    text = done.result()
                    if text is not None:
                        faults[job.title] = text
        except BrokenProcessPool as error:
            raise UserError(
                "a worker was ended from outside, for want of memory perhaps; the same command goes on, with "
                "fewer --workers if so"
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(torch.device(device), threads)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _attempt(job: Job, say: Log | None = None) -> str | None:
    """Do a job; return what went wrong, None if nothing did."""
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
