"""Training whose loss or weights are no longer finite ends there, says so, and keeps all."""

import json
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunRegistry
from tests.cli.conftest import Command

TINY = ("--clients", "3", "--epochs", "1", "--model", "mlp_digits", "--registry", "runs")
WILD = (*TINY, "--rounds", "4", "--lr", "1e30", "--name", "wild")


@pytest.mark.usefixtures("in_time", "at_once")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_ends_in_its_round_and_keeps_all(fedscope: Command, workers: str) -> None:
    done = fedscope("train", *WILD, "--threads", "1", "--workers", workers, "--json")
    assert (done.code, done.json["state"]) == (2, "diverged")
    assert Path(done.json["final"]).name == "last.pt"
    last = done.json["rounds"]
    assert last < 4
    assert f"wild in round {last} diverged, and is kept as it is; train anew with --lr below" in done.err
    manifest = RunRegistry(Path("runs")).run("wild").manifest()
    assert manifest.diverged == last == len(RunRegistry(Path("runs")).run("wild").metrics())
    (row,) = fedscope("runs", "list", "--registry", "runs", "--status", "diverged", "--json").json
    assert row["status"] == "diverged"
    assert fedscope("runs", "verify", "--registry", "runs").code == 0
    shown = fedscope("runs", "show", "wild", "--registry", "runs").out
    assert f"diverged in round {last}" in " ".join(shown.split())
    again = fedscope("train", *WILD, "--resume")
    assert (again.code, f"diverged in round {last} and cannot be continued" in again.err) == (2, True)


def test_in_the_very_last_round_it_is_not_finished_either(fedscope: Command) -> None:
    done = fedscope("train", *TINY, "--rounds", "1", "--lr", "1e30", "--name", "wild", "--json")
    assert (done.code, done.json["state"], Path(done.json["final"]).name) == (2, "diverged", "last.pt")
    run = RunRegistry(Path("runs")).run("wild")
    assert (run.final.exists(), run.manifest().diverged) == (False, 1)
    assert fedscope("runs", "verify", "--registry", "runs").code == 0


def test_a_kill_before_the_manifest_says_so_changes_nothing(fedscope: Command) -> None:
    fedscope("train", *WILD, "--threads", "1")
    run = RunRegistry(Path("runs")).run("wild")
    said, metrics = run.manifest(), run.metrics()
    run.write_manifest(said.model_copy(update={"diverged": None}))
    assert fedscope("train", *WILD, "--resume").code == 2
    assert (run.manifest(), run.metrics()) == (said, metrics)


def test_chance_is_no_divergence_but_a_loss_far_above_guessing_is_told(fedscope: Command) -> None:
    still = fedscope("train", *TINY, "--rounds", "1", "--lr", "0", "--json")
    assert (still.code, still.json["state"]) == (0, "finished")
    loud = fedscope("train", *TINY, "--rounds", "1", "--lr", "30", "--json")
    loss = json.loads(Path("runs", loud.json["run"], "metrics.jsonl").read_text())["train_loss"]
    assert loss > 23
    assert (loud.code, "that of guessing is 2.3; lower --lr" in loud.err) == (0, True)


def test_a_report_refuses_it_before_the_others_are_measured_and_shows_its_training(fedscope: Command) -> None:
    for name, lr in (("calm", "0.01"), ("wild", "1e30")):
        fedscope("train", *TINY, "--rounds", "2", "--lr", lr, "--name", name, "--threads", "1")
    few = ("report", "calm", "wild", "--registry", "runs", "--samples", "32", "--threads", "1")
    refused = fedscope(*few)
    assert (refused.code, "products" in refused.err) == (2, False)
    assert "--no-compute shows its training" in " ".join(refused.err.split())
    assert fedscope(*few, "--no-compute").code == 0
    probes = fedscope("plot-runs", "wild", "--kind", "probes", "--registry", "runs")
    assert "wild have nothing of --kind probes: it diverged in round 1" in " ".join(probes.err.split())
