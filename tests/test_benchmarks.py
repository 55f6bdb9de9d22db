"""The benchmarks' harnesses work; what they measure here means nothing, and nothing is asserted of it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscope.checkpoints.registry.run_folder import RunFolder

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_contestants_do_the_same_work(tmp_path: Path, programs: Path) -> None:
    record = tmp_path / "record.json"
    command: list[str | Path] = [
        programs / "python", BENCHMARKS / "training.py", "--tiny", "--only", "overhead", "--repeats", "1",
        "--without", "stacks of", "one by one", "2 ×", "--json", record,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (group,) = json.loads(record.read_text())["groups"]
    assert len(group["contestants"]) == 2  # no peers here
    assert all(result["samples_per_second"] > 0 for result in group["contestants"].values())
    assert "| fedscope, 1 × 1 |" in done.stdout


@pytest.mark.slow
def test_a_few_trials_of_the_fault_campaign(tmp_path: Path, programs: Path) -> None:
    record = tmp_path / "record.json"
    script = BENCHMARKS / "faults.py"
    command: list[str | Path] = [programs / "python", script, "--seconds", "8", "--json", record]
    done = subprocess.run(command, capture_output=True, text=True)
    counts = json.loads(record.read_text())
    assert (done.returncode, counts["violations"]) == (0, []), done.stdout
    assert counts["trials"] == sum(sum(seen.values()) for seen in counts["outcomes"].values()) > 1
    assert "| training killed | 1 |" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "only"),
    [
        ("cpu", "plot-landscape"),
        pytest.param(
            "cuda", "", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ],
)
def test_a_device_measures_as_the_cpu_does(device: str, only: str, tmp_path: Path, programs: Path) -> None:
    record = tmp_path / "record.json"
    script = BENCHMARKS / "gpu" / "agreement.py"
    python = sys.executable if device == "cuda" else programs / "python"  # whose server has no context there
    command: list[str | Path] = [python, script, "--device", device, "--only", only, "--json", record]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [
        one for entry in json.loads(record.read_text())["commands"] for one in entry["quantities"].values()
    ]
    assert found
    assert all(one["same_bits_twice"] for one in found)
    assert all(one["relative_difference"] <= one["allowed"] for one in found)


@pytest.mark.slow
def test_products_are_counted_shared_and_apart(run: RunFolder, tmp_path: Path, programs: Path) -> None:
    record = tmp_path / "record.json"
    own = RunFolder(tmp_path / "run")
    shutil.copytree(run.folder, own.folder)
    shutil.copy(own.final, own.after_round(1))
    shutil.copy(own.final, own.after_round(2))
    command: list[str | Path] = [programs / "python", BENCHMARKS / "products.py", own.final, own.folder,
               "--samples", "16", "--rtol", "2", "--json", record]  # fmt: skip
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


@pytest.mark.slow
def test_a_coverage_campaign_goes_on_where_it_stopped(tmp_path: Path, programs: Path) -> None:
    settings = {"clients": "1", "partition": "iid", "rounds": "1", "name": "tiny", "registry": str(tmp_path)}
    options = [f"--{name}={value}" for name, value in settings.items()]
    subprocess.run([programs / "fedscope", "train", "-q", *options], check=True)
    record, work = tmp_path / "record.json", tmp_path / "work"
    command: list[str | Path] = [
        programs / "python", BENCHMARKS / "interval_coverage.py", f"--registry={tmp_path}", f"--work={work}",
        f"--json={record}", "--networks=tiny", "--sizes=32",
    ]  # fmt: skip

    def campaign(*options: str) -> Any:
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(record.read_text())["networks"]["tiny"]

    campaign("--draws=2")
    first = {path: path.read_bytes() for path in work.glob("tiny-*/*.npz")}
    found = campaign("--draws=4")
    assert all(path.read_bytes() == content for path, content in first.items())
    of_draws = [found[f"{name}_of_draws"]["32"] for name in ("lambda_max", "trace")]
    assert [one["draws"] for one in of_draws] == [4, 4]
    assert all(one["coverage"] in (0, 0.25, 0.5, 0.75, 1) and one["ratio"] > 0 for one in of_draws)
    assert found["lambda_max"]["certified"]
    assert campaign("--draws=0") == found


@pytest.mark.slow
def test_the_clocks_tell_all_of_a_commands_seconds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "where.py", "--row", "lambda_max", "--json", tmp_path / "where.json"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seconds = json.loads((tmp_path / "where.json").read_text())["rows"]["lambda_max"]["seconds"]
    assert {"start and imports", "products: second derivative", "certificate"} <= seconds.keys()
