"""`fedscope sweep`: every command line is checked first, then run; results come into the registry."""

import json
from pathlib import Path

from fedscope.records.hessian import HessianRecord
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
    refused = fedscope("sweep", "s.toml", "--slurm")
    assert (refused.code, "all 1 jobs are done" in refused.err) == (2, True)
    assert fedscope("sweep", "s.toml", "--again", "--dry-run").code == 0
    assert fedscope("sweep", "s.toml", "--dry-run").out.startswith("done  fedscope")  # it changed nothing
    array = fedscope("sweep", "s.toml", "--slurm", "--again")
    assert (array.code, array.out.strip()) == (0, "s/array.sbatch")


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
    assert "1 of 1 jobs failed; the same command runs them again" in failed.err
    assert "gone" in failed.out


def test_a_task_beyond_the_list_is_refused(fedscope: Command) -> None:
    Path("s.toml").write_text(FILE)
    assert fedscope("sweep", "s.toml", "--slurm").code == 0
    refused = fedscope("sweep", "s/jobs.json", "--task", "4")
    assert (refused.code, "has 1 jobs, from 0 to 0; there is no 4" in refused.err) == (2, True)
