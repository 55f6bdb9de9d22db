"""The benchmark's harness works; what it measures here means nothing, and nothing is asserted of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[1] / "benchmarks" / "training.py"


@pytest.mark.slow
def test_the_contestants_do_the_same_work(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    command = [
        sys.executable,
        str(TRAINING),
        "--tiny",
        "--only",
        "overhead",
        "--repeats",
        "1",
        "--json",
        str(record),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(record.read_text())["groups"]
    assert len(group["contestants"]) == 4  # no peers here
    assert all(result["samples_per_second"] > 0 for result in group["contestants"].values())
    assert "| fedscope, 1 × 1 |" in done.stdout
