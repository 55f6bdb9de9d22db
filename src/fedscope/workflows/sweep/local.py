"""Jobs as processes on this machine, some at a time."""

import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from fedscope.storage import appended, read_end
from fedscope.workflows.sweep import tied
from fedscope.workflows.sweep.jobs import Job

Log = Callable[[str], None]
INTERRUPTED = 130
FEDSCOPE = (sys.executable, "-m", "fedscope")
_TIED = (sys.executable, "-I", "-S", str(tied.__file__))
_PROMPT = "$ fedscope"  # before the command line that begins a part of a log


class Processes:
    """The processes that run now."""

    def __init__(self, program: Sequence[str] = FEDSCOPE) -> None:
        self._program = program
        self._running = set[subprocess.Popen[bytes]]()
        self._lock, self._stopped = threading.Lock(), False

    def run(self, job: Job, out: Path) -> int:
        """Run a job to its end unless it is done by now, and return its exit code.

        What it prints is appended to its log. The process ends with this one, even by ``kill -9``.
        """
        if job.done(out):
            return 0
        job.begin(out)
        words = job.now()
        with appended(job.log(out), below=None) as log:
            with self._lock:
                if self._stopped:
                    return INTERRUPTED
                log.write(f"{_PROMPT} {shlex.join(words)}\n".encode())
                log.flush()
                process = subprocess.Popen(
                    [*_TIED, str(os.getpid()), *self._program, *words], stdin=subprocess.DEVNULL,
                    stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "NO_COLOR": "1"},
                )  # fmt: skip
                self._running.add(process)
            try:
                code = process.wait()
            finally:
                with self._lock:
                    self._running.discard(process)
        if code == 0:
            job.finish(out)
        return code

    def stop(self) -> None:
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
                    faults[job.name] = reason(job, out, code)
                say(f"{number}/{len(left)} {job.name}: {'done' if not code else faults[job.name]}")
        except BaseException:
            processes.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return faults


def reason(job: Job, out: Path, code: int) -> str:
    if diverged := job.diverged:
        run, round = diverged
        return (
            f"diverged in round {round}; lower its lr or give clip, and either delete the run "
            f"(`fedscope runs delete {run.name}`) or give the group of jobs another name"
        )
    lines = read_end(job.log(out)).decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), _PROMPT)
    return f"ended with code {code}" if last.startswith(_PROMPT) else last
