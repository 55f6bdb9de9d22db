"""The jobs of a sweep: a command line each, run here or as a Slurm array whose tasks read a frozen list.

A job that is done is not run again, and a training goes on with its run: the file may change meanwhile, and
`fedscope train --resume` refuses a run that began with other settings.
"""

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from pathlib import Path

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.storage import appended, read_bytes, remove, write_text
from fedscope.storage.limits import parse_json
from fedscope.workflows.sweep.file import COMMANDS, Slurm, Value

JOBS = "jobs-{}.json"  # a frozen list, from which the tasks of an array read, named by its content
_FREE = ("--threads", "--data-dir", "--workers", "--log")  # no settings of a run
Call = Callable[[Sequence[str]], str | None]
"""What runs a command line; it returns why that failed, if it did."""


@dataclass(frozen=True)
class Job:
    """One command line."""

    name: str  # GROUP/WHAT: also its files below the sweep's folder
    words: tuple[str, ...]  # after ``fedscope``

    @property
    def begun(self) -> str | None:
        """The name of the run that it trains, if that is there."""
        if self.words[0] != "train":
            return None
        after = dict(zip(self.words, self.words[1:], strict=False))
        return after["--name"] if RunRegistry(Path(after["--registry"])).has(after["--name"]) else None

    def log(self, out: Path) -> Path:
        return out / f"{self.name}.log"

    def kept(self, out: Path) -> tuple[tuple[str, ...], bool] | None:
        """Return the command line that was begun last, and whether it ended well; None: there is none."""
        try:
            state = parse_json(read_bytes(self._state(out)))
            return tuple(map(str, state["words"])), state["ended"] is True
        except (OSError, UserError, ValueError, TypeError, KeyError):
            return None

    def done(self, out: Path) -> bool:
        return self.kept(out) == (self.words, True) and (self.words[0] != "train" or self.begun is not None)

    def check(self, out: Path) -> None:
        """Refuse a run that this sweep has not begun, or that began with options which are gone."""
        run, kept = self.begun, self.kept(out)
        mend = f"delete the run (`fedscope runs delete {run}`), or give the group of jobs another name"
        if run and kept is None:
            raise UserError(f"{self.name}: the run {run} is there, and this sweep has not begun it; {mend}")
        said = [word for word in (kept[0] if kept else ()) if word.startswith("--") and word not in _FREE]
        gone = [word for word in said if word not in self.words]
        if run and gone:
            raise UserError(
                f"{self.name}: the run {run} began with {', '.join(gone)}; restore the file, {mend}"
            )

    def now(self) -> tuple[str, ...]:
        """Return the command line: of a training whose run is there the one that goes on with it."""
        if not self.begun:
            return self.words
        kept = list(self.words[1:])
        if "--threads" in kept:  # the run has its own from before
            del kept[(place := kept.index("--threads")) : place + 2]
        return ("train", "--resume", *kept)

    def begin(self, out: Path) -> None:
        if not self.begun:
            self._write(out, ended=False)

    def finish(self, out: Path) -> None:
        self._write(out, ended=True)

    def forget(self, out: Path) -> None:
        """Let it run once more; a run that is trained stays."""
        if self.words[0] != "train":
            remove(self._state(out), below=None, missing_ok=True)

    def _write(self, out: Path, *, ended: bool) -> None:
        write_text(self._state(out), json.dumps({"words": self.words, "ended": ended}), below=None)

    def _state(self, out: Path) -> Path:
        return out / f"{self.name}.state"


def run_all(jobs: Sequence[Job], out: Path, call: Call, say: Callable[[str], None]) -> dict[str, str]:
    """Run every job that is not done, one after the other; return why some failed, by their names.

    They run in this process: of a small measurement, the start of a process would take most of the time. What
    a job prints is appended to its log. A job that fails stops no other one, and after an interruption the
    same call goes on with the rest.
    """
    left, faults = [job for job in jobs if not job.done(out)], dict[str, str]()
    for number, job in enumerate(left, 1):
        if not job.done(out):  # by another sweep of the same file, meanwhile
            if fault := _logged(job, out, call):
                faults[job.name] = fault
            else:
                job.finish(out)
        say(f"{number}/{len(left)} {job.name}: {faults.get(job.name, 'done')}")
    return faults


def _logged(job: Job, out: Path, call: Call) -> str | None:
    words = job.now()
    job.begin(out)
    with appended(job.log(out), below=None) as raw, TextIOWrapper(raw, "utf-8", line_buffering=True) as log:
        print(f"$ fedscope {shlex.join(words)}", file=log)
        with redirect_stdout(log), redirect_stderr(log):
            fault = call(words)
        if fault:
            print(f"Error: {fault}", file=log)
    return fault


def freeze(jobs: Sequence[Job], out: Path) -> Path:
    """Write the list of jobs, so that later tasks do the same ones; return the file."""
    text = json.dumps([asdict(job) for job in jobs], indent=1)
    path = out / JOBS.format(hashlib.sha256(text.encode()).hexdigest()[:8])
    write_text(path, text, below=None)
    return path


def frozen(path: Path) -> list[Job]:
    try:
        jobs = [Job(one["name"], tuple(map(str, one["words"]))) for one in parse_json(read_bytes(path))]
        inside = all(part.strip(".") for job in jobs for part in job.name.split("/"))
        if inside and all(job.words[0] in COMMANDS for job in jobs):
            return jobs
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        pass
    raise UserError(f"{path} is no list of jobs: `fedscope sweep FILE --slurm` writes one")


BATCH = "array.sbatch"
_OURS = ("array", "output", "job-name")


def write_array(jobs: Sequence[Job], asked: Slurm, out: Path, name: str) -> Path:
    left = [job for job in jobs if not job.done(out)]
    if not left:
        raise UserError(f"all {len(jobs)} jobs are done; --again makes an array of all")
    options = {key.replace("_", "-"): value for key, value in asked.options.items()}
    if taken := [key for key in options if key in _OURS]:
        raise UserError(f"slurm.options.{taken[0]} is set by the sweep; leave it out")
    listed, most = freeze(left, out), f"%{asked.parallel}" if asked.parallel else ""
    program = f"{shlex.quote(sys.executable)} -m fedscope"
    log = Path(str(out).replace("%", "%%")) / "slurm-%A-%a.log"  # of one % Slurm makes a number or a name
    ours = {"job-name": name, "array": f"0-{len(left) - 1}{most}", "output": str(log)}
    lines = [
        "#!/bin/bash",
        *(_directive(key, value) for key, value in {**ours, **options}.items() if value is not False),
        "set -e",
        *asked.setup,
        f'{program} sweep {shlex.quote(str(listed))} --task "$SLURM_ARRAY_TASK_ID"',
    ]
    path = out / BATCH
    write_text(path, "\n".join([*lines, ""]), below=None)
    return path


def _directive(key: str, value: Value) -> str:
    """Return a line that sbatch reads as one option, whatever blanks are in its value."""
    if re.search(r'["\\\x00-\x1f\x7f]', f"{key}{value}") or not re.fullmatch("[a-z][a-z-]*", key):
        raise UserError(
            f"sbatch cannot take --{key}={value!r}; leave out quotes, backslashes and line ends, also in the "
            "name of the sweep's file or folder"
        )
    quoted = f'"{value}"' if re.search(r"[\s#']", str(value)) else value
    return f"#SBATCH --{key}" if value is True else f"#SBATCH --{key}={quoted}"
