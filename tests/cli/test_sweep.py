"""`fedscope sweep`: every command line is checked first, then run; results come into the registry."""

import json
import re
from pathlib import Path

import pytest
import torch

from fedscope.records.hessian_record import HessianRecord
from tests.cli.conftest import Command

FILE = """
checkpoints = ["t?ny@0"]
[jobs.curvature]
command = "hessian"
options = { samples = 32, batch-size = 8, tol = 0.1, probes = 2 }
"""


def test_a_sweep_from_dry_run_to_results(fedscope: Command) -> None:
    Path("s.toml").write_text(FILE)
    planned = fedscope("sweep", "s.toml", "--dry-run")
    assert planned.code == 0, planned.err
    assert planned.out.startswith("to do  fedscope hessian tiny@0 --samples 32")
    done = fedscope("sweep", "s.toml", "--json", "-")
    assert done.code == 0, done.err
    (job,) = done.json
    assert (job["name"], job["done"], job["fault"]) == ("curvature/tiny@0", True, None)
    record = HessianRecord.read(json.loads(Path(job["result"]).read_text()))
    assert record.problem.samples == 32
    assert fedscope("sweep", "s.toml", "--dry-run").out.startswith("done  fedscope")
    quoted = fedscope("sweep", "s.toml", "--dry-run", "--out", "my sweep").out
    assert "--json 'my sweep/" in quoted
    assert fedscope("sweep", "s.toml", "--slurm", "--out", "my sweep").err == (
        "hand it in with: sbatch 'my sweep/array.sbatch'\n"
    )
    refused = fedscope("sweep", "s.toml", "--slurm")
    assert (refused.code, "all 1 jobs are done" in refused.err) == (2, True)
    assert fedscope("sweep", "s.toml", "--again", "--dry-run").code == 0
    assert fedscope("sweep", "s.toml", "--dry-run").out.startswith("done  fedscope")  # it changed nothing
    array = fedscope("sweep", "s.toml", "--slurm", "--again")
    assert (array.code, array.out.strip()) == (0, "s/array.sbatch")


def test_a_job_leaves_the_threads_of_the_next_one_as_they_were(fedscope: Command) -> None:
    before = torch.get_num_threads()
    Path("s.toml").write_text(FILE)
    assert fedscope("sweep", "s.toml", "--threads", str(before + 1)).code == 0
    assert torch.get_num_threads() == before


def test_a_wrong_option_is_said_before_anything_runs(fedscope: Command) -> None:
    Path("s.toml").write_text(FILE.replace("probes = 2", "prbes = 2"))
    refused = fedscope("sweep", "s.toml")
    assert refused.code == 2
    assert "curvature/tiny@0: No such option '--prbes'" in refused.err
    assert not Path("s").exists()


def test_a_job_that_fails_is_named_with_its_reason(fedscope: Command) -> None:
    Path("s.toml").write_text(FILE.replace("t?ny@0", "gone"))
    failed = fedscope("sweep", "s.toml")
    assert failed.code == 2
    assert "1 of 1 jobs failed; mend that, and the same command runs them again" in failed.err
    assert "gone" in failed.out


TRAIN = """
[jobs.short]
command = "train"
options = { model = "mlp_digits", clients = 2, rounds = 2, epochs = 1, train-samples = 64, lr = 1e30 }
"""


def test_a_training_that_diverged_is_told_below_the_table_with_the_mend(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Path("s.toml").write_text(TRAIN)
    failed = fedscope("sweep", "s.toml", "--registry", "runs")
    assert failed.code == 2
    assert re.search(r"^short/short +│ failed +│ s/short/short.json$", failed.out, re.MULTILINE)
    assert max(map(len, failed.out.splitlines())) <= 80
    told = " ".join(failed.out.split())
    assert "short/short: loss or weights not finite: short-short in round 1 diverged" in told
    assert "train anew with --lr below 1e+30, or with --clip" in told
    assert "once its run is deleted or its group has another name" in failed.err
    again = fedscope("sweep", "s.toml", "--registry", "runs", "--json", "-").json[0]
    log = Path(again["log"]).read_text()
    assert "not finite" in log  # the first start's reason
    assert "cannot be continued" in log
    Path("s.toml").write_text(TRAIN.replace(", lr = 1e30", ""))
    refused = fedscope("sweep", "s.toml", "--registry", "runs")
    assert (refused.code, "short/short: the run short-short began with --lr;" in refused.err) == (2, True)
    assert Path(again["log"]).read_text() == log
    Path("s.toml").write_text(TRAIN.replace("1e30", "0.01"))
    refused = fedscope("sweep", "s.toml", "--registry", "runs")
    assert (refused.code, "cannot be continued" in " ".join(refused.out.split())) == (2, True), refused.out
    assert fedscope("runs", "delete", "short-short", "--yes", "--registry", "runs").code == 0
    done = fedscope("sweep", "s.toml", "--registry", "runs", "--json", "-")
    assert (done.code, done.json[0]["done"]) == (0, True), done.err


def test_a_task_of_an_array_goes_on_with_no_run_that_began_otherwise(fedscope: Command) -> None:
    Path("s.toml").write_text(TRAIN.replace("jobs.short", "jobs.tiny"))
    assert fedscope("sweep", "s.toml", "--slurm", "--registry", "runs").code == 0
    Path("runs/tiny-tiny").mkdir(parents=True)
    Path("runs/tiny-tiny/manifest.json").write_text("{}")
    (listed,) = Path("s").glob("jobs-*.json")
    refused = fedscope("sweep", str(listed), "--task", "0")
    assert (refused.code, "the run tiny-tiny is there, and this sweep has not begun it" in refused.err) == (
        2,
        True,
    )
    assert sorted(path.name for path in Path("s").iterdir()) == ["array.sbatch", listed.name]


def test_a_task_beyond_the_list_is_refused(fedscope: Command) -> None:
    Path("s.toml").write_text(FILE)
    assert fedscope("sweep", "s.toml", "--slurm").code == 0
    (listed,) = Path("s").glob("jobs-*.json")
    refused = fedscope("sweep", str(listed), "--task", "4")
    assert (refused.code, "has 1 jobs, from 0 to 0; there is no 4" in refused.err) == (2, True)
