"""A sweep as one Slurm array: a batch file whose tasks read their job from the frozen list."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from fedscope.errors import UserError
from fedscope.storage import write_text
from fedscope.workflows.sweep.file import Slurm, Value
from fedscope.workflows.sweep.jobs import Job, freeze

BATCH = "array.sbatch"
_OURS = ("array", "output", "job-name")


def write(jobs: Sequence[Job], asked: Slurm, out: Path, name: str) -> Path:
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
