"""The jobs of a sweep: a command line each, and where its result, its log and its mark lie."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.errors import UserError
from fedscope.storage import read_bytes, remove, write_text
from fedscope.storage.limits import parse_json
from fedscope.workflows.sweep.file import Jobs, SweepFile, Value

JOBS = "jobs.json"  # the frozen list, from which the tasks of an array read
_JOB = "{job}"
_RESUMED = ("--name", "--registry", "--threads", "--data-dir", "--json")  # all else is the run's


@dataclass(frozen=True)
class Job:
    """One command line."""

    name: str  # GROUP/WHAT: also its files below the sweep's folder
    words: tuple[str, ...]  # after ``fedscope``

    def log(self, out: Path) -> Path:
        """Return the file of what it printed."""
        return out / f"{self.name}.log"

    def done(self, out: Path) -> bool:
        """Say whether this very command line has ended well."""
        try:
            return bool(parse_json(read_bytes(self._mark(out))) == list(self.words))
        except (OSError, UserError, ValueError):
            return False

    def now(self) -> tuple[str, ...]:
        """Return the command line: of a training that was interrupted the one that resumes it."""
        if self.words[0] != "train":
            return self.words
        name, registry = (self.words[self.words.index(flag) + 1] for flag in ("--name", "--registry"))
        run = Run(Path(registry) / name)
        if not run.has_manifest or run.final.exists():
            return self.words
        kept = [self.words[i : i + 2] for i, word in enumerate(self.words) if word in _RESUMED]
        return ("train", "--resume", *(word for pair in kept for word in pair))

    def finish(self, out: Path) -> None:
        """Mark it as done."""
        write_text(self._mark(out), json.dumps(self.words), below=None)

    def forget(self, out: Path) -> None:
        """Remove the mark."""
        remove(self._mark(out), below=None, missing_ok=True)

    def _mark(self, out: Path) -> Path:
        return out / f"{self.name}.done"


def expand(file: SweepFile, registry: Path, out: Path, threads: int) -> list[Job]:
    """Return every job of a file.

    Args:
        file: the sweep.
        registry: where the runs are, and come to.
        out: the sweep's folder.
        threads: of each job.

    Raises:
        UserError: a pattern matches no run, a command that takes checkpoints has none, an option has no
            values, or two jobs have one name.
    """
    found = [
        job
        for group, jobs in file.jobs.items()
        for job in _of_group(group, jobs, file.checkpoints, registry, out, threads)
    ]
    names = [job.name for job in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"two jobs are called {min(twice)}: name each checkpoint and each value once")
    return found


def _of_group(
    group: str, jobs: Jobs, checkpoints: Sequence[str], registry: Path, out: Path, threads: int
) -> Iterator[Job]:
    if empty := [name for name, values in jobs.each.items() if not values]:
        raise UserError(f"jobs.{group}.each.{empty[0]} has no value")
    given = checkpoints if jobs.checkpoints is None else jobs.checkpoints
    targets = [one for text in given for one in _matching(text, registry)]
    if jobs.command == "train":
        targets = [""]
    if not targets:
        raise UserError(f'jobs.{group} has no checkpoint; name some: checkpoints = ["fedavg*", "flat@best"]')
    for target in dict.fromkeys(targets):
        for values in product(*jobs.each.values()):
            varied = dict(zip(jobs.each, values, strict=True))
            name = f"{group}/{_named(target, varied) or group}"
            words = [jobs.command, *filter(None, [target]), *_options({**jobs.options, **varied}, out / name)]
            words += ["--registry", str(registry), "--threads", str(threads)]
            if jobs.command == "train":
                words += ["--name", name.replace("/", "-")]
            words += ["--json", f"{out / name}.json"]
            yield Job(name, tuple(words))


def _named(target: str, varied: Mapping[str, Value]) -> str:
    """Return a file's name for a checkpoint and its values: ``flat@best-seed0``."""
    values = [value if isinstance(value, str) else f"{key}{value}" for key, value in varied.items()]
    target = Path(target).name if target.endswith(".pt") else target
    return "-".join(re.sub(r"[^\w.@+-]+", "_", text) for text in (target, *values) if text)


def _matching(text: str, registry: Path) -> list[str]:
    """Return what a text names: itself, or the runs that its pattern matches."""
    pattern, at, which = text.partition("@")
    if not re.search(r"[*?\[]", pattern):
        return [text]
    names = sorted(run.name for run in Registry(registry).folders() if fnmatchcase(run.name, pattern))
    if not names:
        raise UserError(f"no run in {registry} matches {pattern}; `fedscope runs list` shows them")
    return [f"{name}{at}{which}" for name in names]


def _options(values: Mapping[str, Value], own: Path) -> Iterator[str]:
    for key, value in values.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            yield from [flag] if value else []
        else:
            yield from (flag, str(value).replace(_JOB, str(own)))


def freeze(jobs: Sequence[Job], out: Path) -> Path:
    """Write the list of jobs, so that later tasks do the same ones; return the file."""
    path = out / JOBS
    write_text(path, json.dumps([asdict(job) for job in jobs], indent=1), below=None)
    return path


def frozen(path: Path) -> list[Job]:
    """Return the jobs of such a list.

    Raises:
        UserError: it is none.
    """
    try:
        return [Job(one["name"], tuple(one["words"])) for one in parse_json(read_bytes(path))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no list of jobs: `fedscope sweep FILE --slurm` writes one") from error
