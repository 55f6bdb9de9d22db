"""The jobs of a sweep: a command line each, and where its result, its log and its mark lie."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.storage import read_bytes, remove, write_text
from fedscope.storage.limits import parse_json
from fedscope.workflows.sweep.file import COMMANDS, Jobs, SweepFile, Value

JOBS = "jobs-{}.json"  # a frozen list, from which the tasks of an array read, named by its content
OURS = ("registry", "threads", "name", "json")  # options that a sweep gives every command
_JOB = "{job}"
Off = Callable[[str, str], str | None]  # (command, flag)
DEFAULTS: Mapping[str, Mapping[str, Value]] = {"plot-landscape": {"out": f"{_JOB}.png"}}  # else all were one
_ON = ("--data-dir", "--json", "--workers", "--log", "--tensorboard", "--seeds")
_FREE = ("--threads", *_ON)  # may change while a run goes on, which keeps its own threads
_RESUMED = ("--name", "--registry", "--device", *_ON)  # all else is the run's


@dataclass(frozen=True)
class BegunJob:
    """What is written down of a job that has begun."""

    words: tuple[str, ...]  # its command line then
    ended: bool  # well


@dataclass(frozen=True)
class Job:
    """One command line."""

    name: str  # GROUP/WHAT: also its files below the sweep's folder
    words: tuple[str, ...]  # after ``fedscope``

    @property
    def runs(self) -> tuple[RunFolder, ...]:
        """The runs that it trains, one for each of ``--seeds``; none of another command."""
        if self.words[0] != "train":
            return ()
        given = {flag: values for flag, *values in _by_flag(self.words)}
        (folder,), (name,), (seeds,) = given["--registry"], given["--name"], given.get("--seeds", [None])
        suffixes = [""] if seeds is None else [f"-s{int(seed)}" for seed in seeds.split(",")]
        return tuple(RunFolder(Path(folder) / f"{name}{suffix}") for suffix in suffixes)

    @property
    def begun(self) -> list[RunFolder]:
        return [run for run in self.runs if run.has_manifest]

    @property
    def finished(self) -> bool:
        """Whether it trains, and all its runs are finished."""
        return bool(self.runs) and all(run.is_finished for run in self.runs)

    def log(self, out: Path) -> Path:
        return out / f"{self.name}.log"

    def kept(self, out: Path) -> BegunJob | None:
        """Return what is written down of it; None: it has not begun, or the note is damaged."""
        try:
            state = parse_json(read_bytes(self._state(out)))
            return BegunJob(tuple(map(str, state["words"])), state["ended"] is True)
        except (OSError, UserError, ValueError, TypeError, KeyError):
            return None

    def done(self, out: Path) -> bool:
        """Say whether this command line has ended well; a training: whether its runs are finished."""
        kept = self.kept(out)
        if kept is None:
            return False
        if not self.runs:
            return kept.ended and kept.words == self.words
        return self.finished and settings(kept.words) == settings(self.words)

    @property
    def diverged(self) -> tuple[RunFolder, int] | None:
        """The first of its runs that diverged, and in which round; None: none did."""
        for run in self.begun:
            with suppress(UserError):  # a damaged run: the log says so
                if round := run.manifest().diverged:
                    return run, round
        return None

    def now(self) -> tuple[str, ...]:
        """Return the command line: of a training that was interrupted the one that resumes it."""
        if not self.begun or self.finished:
            return self.words
        kept = [words for words in _by_flag(self.words) if words[0] in _RESUMED]
        return ("train", "--resume", *(word for words in kept for word in words))

    def begin(self, out: Path) -> None:
        """Write down that it begins; not of runs that are there already, which another one has trained."""
        if not self.finished:
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


def settings(words: Sequence[str]) -> dict[str, str]:
    """Return the options of a training's command line by their flags, without those that may change later.

    A flag without a value has the value ``given``; one that is there several times has all of its values.
    """
    found = dict[str, list[str]]()
    for flag, *values in _by_flag(words):
        found.setdefault(flag, []).extend(values)
    return {flag: " ".join(values) or "given" for flag, values in found.items() if flag not in _FREE}


def _by_flag(words: Sequence[str]) -> list[list[str]]:
    found = list[list[str]]()
    for word in words[1:]:
        if word.startswith("--"):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def expand(
    file: SweepFile, registry: Path, out: Path, threads: int, off: Off = lambda command, flag: None
) -> list[Job]:
    """Return every job of a file; ``off`` is the flag that turns an option off, such as ``--no-nesterov``."""
    found = [
        job
        for group, jobs in file.jobs.items()
        for job in _of_group(group, jobs, file.checkpoints, registry, out, threads, off)
    ]
    names = [job.name for job in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"two jobs are called {min(twice)}: name each checkpoint and each value once")
    return found


def _of_group(
    group: str,
    jobs: Jobs,
    checkpoints: Sequence[str],
    registry: Path,
    out: Path,
    threads: int,
    off: Off,
) -> Iterator[Job]:
    checked_name(group, "name of a group of jobs")
    _check_options(group, jobs)
    for target in _targets(group, jobs, checkpoints, registry):
        for values in product(*jobs.each.values()):
            varied = dict(zip(jobs.each, values, strict=True))
            name = f"{group}/{_named(target, varied) or group}"
            given = {**DEFAULTS.get(jobs.command, {}), **jobs.options, **varied}
            words = [
                jobs.command,
                *filter(None, [target]),
                *_options(given, out / name, partial(off, jobs.command)),
            ]
            words += ["--registry", str(registry), "--threads", str(threads)]
            words += ["--name", name.replace("/", "-")] if jobs.command == "train" else []
            words += ["--json", f"{out / name}.json"]
            yield Job(name, tuple(words))


def _check_options(group: str, jobs: Jobs) -> None:
    for name in (*jobs.options, *jobs.each):
        if name.replace("_", "-") in OURS:
            raise UserError(f"jobs.{group}: the sweep itself gives --{name}; leave it out")
        if name in jobs.each and not jobs.each[name]:
            raise UserError(f"jobs.{group}.each.{name} has no value")


def _targets(group: str, jobs: Jobs, checkpoints: Sequence[str], registry: Path) -> list[str]:
    if jobs.command == "train":
        return [""]
    given = checkpoints if jobs.checkpoints is None else jobs.checkpoints
    found = dict.fromkeys(one for text in given for one in RunRegistry(registry).matching(text))
    if not found:
        raise UserError(f'jobs.{group} has no checkpoint; name some: checkpoints = ["fedavg*", "flat@best"]')
    return list(found)


def _named(target: str, varied: Mapping[str, Value]) -> str:
    """Return a file's name for a checkpoint and its values: ``flat@best-seed0``."""
    values = [value if isinstance(value, str) else f"{key}{value}" for key, value in varied.items()]
    target = Path(target).name if target.endswith(".pt") else target
    return "-".join(re.sub(r"[^\w.@+-]+", "_", text) for text in (target, *values) if text)


def _options(values: Mapping[str, Value], own: Path, off: Callable[[str], str | None]) -> Iterator[str]:
    for key, value in values.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, bool):
            yield from filter(None, [flag if value else off(flag)])
        else:
            yield from (flag, str(value).replace(_JOB, str(own)))


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
