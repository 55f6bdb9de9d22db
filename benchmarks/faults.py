"""A seeded campaign of faults against the registry, by the real commands.

    python benchmarks/faults.py [--seconds 3600] [--seed 0] [--json FILE] [--only TRIAL]

Each trial copies a small registry beside a tree that nothing may touch, does one thing to it (a kill, a
full disk, a turned bit, a link, …: `fault_processes.py` and `fault_files.py`), gives commands, and looks
for what must not be: a change outside the registry, a traceback, a command that hangs or ends with an odd
code, a damaged file that is believed, a resumed run with other bits. A violation is printed with its trial;
``--only`` repeats that alone. ``--seconds`` is processor time, of the commands and of the campaign itself.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from fault_files import FILES
from fault_processes import PROCESSES
from fault_scene import Clean, Scene

import fedscope.checkpoints.travel.pull
import fedscope.checkpoints.verification.verify
import fedscope.cli.runs.runs
import fedscope.workflows.export
import fedscope.workflows.landscape.landscape_command
import fedscope.workflows.report_page
import fedscope.workflows.train.train_runs  # noqa: F401  these are what the commands import, before they are forked
from fedscope.checkpoints.file.checkpoint import versions

FAULTS = PROCESSES | FILES


@dataclass
class Tally:
    """What came of the trials so far."""

    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    violations: list[dict[str, object]] = field(default_factory=list)
    commands: int = 0
    seconds: float = 0.0

    def table(self) -> str:
        """Return the outcomes as a Markdown table."""
        lines = ["| fault | trials | outcome | violations |", "|---|---:|---|---:|"]
        for fault, seen in self.outcomes.items():
            told = ", ".join(f"{count} {outcome}" for outcome, count in seen.most_common())
            wrong = sum(violation["fault"] == fault for violation in self.violations)
            lines.append(f"| {fault} | {seen.total()} | {told} | {wrong} |")
        return "\n".join(lines)


def trial(number: int, seed: int, folder: Path, clean: Clean, tally: Tally) -> None:
    """Do one trial; which, and everything drawn in it, depends on its number and the seed alone."""
    draw = random.Random(f"{seed}/{number}")
    fault = list(FAULTS)[number % len(FAULTS)]
    scene = Scene(folder / str(number), draw, clean)
    outcome = FAULTS[fault](scene)
    scene.close()
    tally.outcomes[fault][outcome] += 1
    tally.commands += scene.commands
    tally.seconds += scene.spent
    for problem in scene.problems:
        tally.violations.append({"trial": number, "fault": fault, "problem": problem})
        print(f"VIOLATION in --seed {seed} --only {number} ({fault}): {problem}", flush=True)


def campaign(seconds: float, seed: int, only: int | None, record: Path | None = None) -> Tally:
    """Do trials until ``seconds`` of processor time are spent; write the counts after each to ``record``."""
    tally, began = Tally(), time.process_time()
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    try:
        clean = Clean.made(folder)
        number = only or 0
        while only is None or number == only:
            trial(number, seed, folder, clean, tally)
            number += 1
            spent = tally.seconds + time.process_time() - began
            if record is not None:
                _write(record, seed, number, spent, tally)
            if spent > seconds:
                break
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _write(path: Path, seed: int, trials: int, spent: float, tally: Tally) -> None:
    counts = {fault: dict(seen) for fault, seen in tally.outcomes.items()}
    content = {
        "seed": seed, "trials": trials, "commands": tally.commands, "seconds": spent, "outcomes": counts,
        "violations": tally.violations, "versions": versions(),
    }  # fmt: skip
    path.write_text(json.dumps(content, indent=1))


def main() -> None:
    """Run the campaign that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="processor time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="TRIAL")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tally = campaign(asked.seconds, asked.seed, asked.only, asked.json)
    print(tally.table())
    raise SystemExit(bool(tally.violations))


if __name__ == "__main__":
    main()
