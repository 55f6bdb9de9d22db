"""Jobs as processes on this machine, some at a time."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from fedscope.storage import new_file, read_bytes, remove
from fedscope.workflows.sweep.jobs import Job

Log = Callable[[str], None]
INTERRUPTED = 130
FEDSCOPE = (sys.executable, "-m", "fedscope")


class Processes:
    """The processes that run now; :meth:`stop` ends them all.

    Args:
        program: what runs a command line.
    """

    def __init__(self, program: Sequence[str] = FEDSCOPE) -> None:
        self._program = program
        self._running = set[subprocess.Popen[bytes]]()
        self._lock, self._stopped = threading.Lock(), False

    def run(self, job: Job, out: Path) -> int:
        """Run a job to its end, and return its exit code; what it prints goes to its log."""
        job.begin(out)
        remove(job.log(out), below=None, missing_ok=True)
        with new_file(job.log(out), below=None) as log:
            with self._lock:
                if self._stopped:
                    return INTERRUPTED
                process = subprocess.Popen(
                    [*self._program, *job.now()], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, env={**os.environ, "NO_COLOR": "1"},
                )  # fmt: skip
                self._running.add(process)
            try:
                code = process.wait()
            finally:
                self._running.discard(process)
        if code == 0:
            job.finish(out)
        return code

    def stop(self) -> None:
        """End all processes; no further one begins."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.terminate()


def run_all(
    jobs: Sequence[Job], out: Path, *, workers: int, say: Log, program: Sequence[str] = FEDSCOPE
) -> dict[str, str]:
    """Run every job that is not done, ``workers`` at a time; return why some failed, by their names.

    A job that fails stops no other one. After an interruption the same call goes on with the rest.
    """
    faults, processes = dict[str, str](), Processes(program)
    left = [job for job in jobs if not job.done(out)]
    with ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(processes.run, job, out): job for job in left}
        try:
            for number, ended in enumerate(as_completed(waiting), 1):
                job, code = waiting[ended], ended.result()
                if code:
                    faults[job.name] = last_line(job.log(out)) or f"ended with code {code}"
                say(f"{number}/{len(left)} {job.name}: {'done' if not code else faults[job.name]}")
        except BaseException:
            processes.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return faults


def last_line(log: Path) -> str:
    """Return the last line that a job printed."""
    lines = read_bytes(log).decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
