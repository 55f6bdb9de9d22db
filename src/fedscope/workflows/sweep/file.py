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

from pathlib import Path
from typing import Literal, get_args

from pydantic import ConfigDict, Field

from fedscope.storage import read_toml
from fedscope.validation import Plain

Value = bool | int | float | str
Command = Literal["train", "hessian", "sharpness", "clients", "plot-landscape"]
COMMANDS: tuple[str, ...] = get_args(Command)


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
