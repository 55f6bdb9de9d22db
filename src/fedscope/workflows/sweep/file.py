"""A sweep's file: commands, the checkpoints that they are for, and the values of their options.

    checkpoints = ["fedavg*", "flat@best"]     # RUN@WHICH or files; * and ? stand for parts of a run's name

    [jobs.curvature]
    command = "hessian"
    options = { samples = 1024, top-k = 5 }

    [jobs.tolerances]
    command = "hessian"
    checkpoints = ["flat"]                     # instead of those above
    options = { figure = "{job}.pdf" }         # {job}: the job's own file, without its suffix
    each = { tol = [1e-2, 1e-3], seed = [0, 1] }

    [jobs.runs]
    command = "train"
    options = { rounds = 20 }
    each = { method = ["fedavg", "fedsam"], seed = [0, 1, 2] }

    [slurm]
    parallel = 8                               # jobs at a time
    setup = ["source .venv/bin/activate"]      # lines of shell before each job
    options = { time = "02:00:00", gres = "gpu:1" }

A job's options are those of its command, with - or _. Every combination of ``each`` is a job of its own.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from pydantic import ConfigDict, Field

from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.storage import read_toml
from fedscope.validation import Plain

Value = bool | int | float | str
Command = Literal["train", "hessian", "sharpness", "clients", "plot-landscape"]
COMMANDS: tuple[str, ...] = get_args(Command)
_OURS = {  # options that a sweep gives every command, or has another way for
    **dict.fromkeys(("registry", "threads", "name", "json"), "the sweep itself gives --{}; leave it out"),
    "seeds": "a job trains one run; instead of --{} write each = {{ seed = [0, 1] }}",
}
_JOB = "{job}"
_OUT: Mapping[str, Mapping[str, Value]] = {"plot-landscape": {"out": f"{_JOB}.png"}}  # else all were one


class _Table(Plain):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Jobs(_Table):
    """A command, for each checkpoint and each combination of values."""

    command: Command
    checkpoints: list[str] | None = None  # None: the file's
    options: dict[str, Value] = Field(default_factory=dict)
    each: dict[str, list[Value]] = Field(default_factory=dict)


class Slurm(_Table):
    """What the Slurm array needs."""

    parallel: int | None = Field(None, ge=1)  # jobs at a time; None: as many as the cluster gives
    setup: list[str] = Field(default_factory=list)
    options: dict[str, Value] = Field(default_factory=dict)  # of sbatch, by their long names


class SweepFile(_Table):
    """All of a file."""

    checkpoints: list[str] = Field(default_factory=list)
    jobs: dict[str, Jobs] = Field(min_length=1)
    slurm: Slurm = Field(default_factory=Slurm)


def read(path: Path) -> SweepFile:
    return SweepFile.read(read_toml(path), str(path))


def expand(
    file: SweepFile, registry: Path, out: Path, threads: int | None, off: Callable[[str, str], str | None]
) -> dict[str, tuple[str, ...]]:
    """Return the command line of every job, by the job's name.

    Args:
        file: what is asked for.
        registry: where the runs are.
        out: folder of the jobs' files.
        threads: of each job; None: as its command does without.
        off: (command, flag) ↦ the flag that turns an option off, such as ``--no-nesterov``; or None.
    """
    found = dict[str, tuple[str, ...]]()
    for group, jobs in file.jobs.items():
        checked_name(group, "name of a group of jobs")
        _check_options(group, jobs)
        targets = [""] if jobs.command == "train" else _targets(group, jobs, file.checkpoints, registry)
        for target, values in product(targets, product(*jobs.each.values())):
            varied = dict(zip(jobs.each, values, strict=True))
            name = f"{group}/{_named(target, varied) or group}"
            if name in found:
                raise UserError(f"two jobs are called {name}: name each checkpoint and each value once")
            given = {**_OUT.get(jobs.command, {}), **jobs.options, **varied}
            words = [jobs.command, *filter(None, [target])]
            for key, value in given.items():
                words += _option(jobs.command, key, value, str(out / name), off)
            words += ["--registry", str(registry)]
            words += ["--threads", str(threads)] if threads else []
            words += ["--name", name.replace("/", "-")] if jobs.command == "train" else []
            found[name] = (*words, "--json", f"{out / name}.json")
    return found


def _check_options(group: str, jobs: Jobs) -> None:
    for name in (*jobs.options, *jobs.each):
        if why := _OURS.get(plain := name.replace("_", "-")):
            raise UserError(f"jobs.{group}: {why.format(plain)}")
        if name in jobs.each and not jobs.each[name]:
            raise UserError(f"jobs.{group}.each.{name} has no value")


def _targets(group: str, jobs: Jobs, checkpoints: list[str], registry: Path) -> list[str]:
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


def _option(
    command: str, key: str, value: Value, own: str, off: Callable[[str, str], str | None]
) -> Iterator[str]:
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        yield from filter(None, [flag if value else off(command, flag)])
    else:
        yield from (flag, str(value).replace(_JOB, own))
