"""fedscope as a user runs it: the command `fedscope train`, with its registry, metrics and checkpoints.

The clock is the wall: the command prints a line when a round is over and everything of it is on the disk;
the time between the first and the last of these lines counts. What the run recorded is reported beside it.
The script's options behind the work file are those of the command.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from shared import Rounds

ROUND = re.compile(r"\bround (\d+)/(\d+):")


def command(settings: Mapping[str, Any], registry: Path, execution: Sequence[str]) -> list[str]:
    """Return the command line: every field of the settings under its own name, then how to execute it."""
    line = [sys.executable, "-m", "fedscope", "train", "--json", "--device", "cpu"]
    line += ["--registry", str(registry), "--name", "run"]
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line += [f"--{flag}" if value else f"--no-{flag}"]
        else:
            line += [f"--{flag}", str(value)]
    return [*line, *execution]


def watched(line: Sequence[str]) -> list[float]:
    """Run the command; return when each round was over.

    Raises:
        SystemExit: the command failed; says what it wrote.
    """
    ends, written = [], []
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for text in process.stderr:
            if ROUND.search(text):
                ends.append(time.perf_counter())
            written.append(text)
    if process.returncode:
        raise SystemExit("".join(written[-20:]))
    return ends


def main() -> None:
    """Time the rounds after the first; steps and participants are what the run recorded."""
    raw = torch.load(sys.argv[1], weights_only=True, mmap=True)
    settings, samples = raw["settings"], raw["train_labels"].shape[1]
    with tempfile.TemporaryDirectory() as folder:
        ends = watched(command(settings, Path(folder), sys.argv[2:]))
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    if not len(ends) == len(records) == settings["rounds"]:
        raise SystemExit(f"{len(ends)} lines and {len(records)} records for {settings['rounds']} rounds")
    steps = [record["gradients"] for record in records]
    seen = [len(record["clients"]) * settings["epochs"] * samples for record in records]
    Rounds(ends, steps, seen).report(
        accuracy=records[-1]["accuracy"],
        seconds_recorded=sum(record["seconds"] for record in records[1:]),
        seconds_in={
            name: sum(r["seconds_in"][name] for r in records[1:]) for name in records[1]["seconds_in"]
        },
    )


if __name__ == "__main__":
    main()
