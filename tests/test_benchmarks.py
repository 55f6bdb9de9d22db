"""The benchmarks' harnesses work; what they measure here means nothing, and nothing is asserted of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run import Run

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
        "--without",
        "stacks of",
        "--json",
        str(record),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(record.read_text())["groups"]
    assert len(group["contestants"]) == 2  # no peers here
    assert all(result["samples_per_second"] > 0 for result in group["contestants"].values())
    assert "| fedscope, 1 × 1 |" in done.stdout


@pytest.mark.slow
def test_a_few_trials_of_the_fault_campaign(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    script = Path(__file__).parents[1] / "benchmarks" / "faults.py"
    command = [sys.executable, str(script), "--seconds", "8", "--json", str(record)]
    done = subprocess.run(command, capture_output=True, text=True)
    counts = json.loads(record.read_text())
    assert (done.returncode, counts["violations"]) == (0, []), done.stdout
    assert counts["trials"] == sum(sum(seen.values()) for seen in counts["outcomes"].values()) > 1
    assert "| training killed | 1 |" in done.stdout


@pytest.mark.slow
def test_products_are_counted_shared_and_apart(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    own = Run(tmp_path / "run")
    shutil.copytree(run.folder, own.folder)
    shutil.copy(own.final, own.after_round(1))
    shutil.copy(own.final, own.after_round(2))
    script = Path(__file__).parents[1] / "benchmarks" / "products.py"
    command = [sys.executable, str(script), str(own.final), str(own.folder), "--samples", "16",
               "--rtol", "2", "--json", str(record)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(record.read_text())
    for way in ("shared", "apart"):
        report = found[way]["report"]
        names = ("lambda_max", "trace", "density", "cross_client")
        assert report["products"] == sum(report[name] for name in names)
        assert len(found[way]["rounds"]["each"]) == 2
    assert found["shared"]["report"]["density"] == found["apart"]["report"]["density"] - 4
    assert len(found["control"]) == 3
