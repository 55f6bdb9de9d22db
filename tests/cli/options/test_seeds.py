"""`train --seeds`: a run per seed, continued together, with mean and standard deviation."""

import math
from pathlib import Path
from statistics import mean, stdev

import pytest

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.workflows.train.train_request import TrainedRun
from tests.cli.conftest import Command

TINY = ("--clients", "3", "--rounds", "2", "--epochs", "1", "--model", "mlp_digits", "--registry", "runs")


def test_a_run_per_seed_and_their_spread(fedscope: Command) -> None:
    results = fedscope("train", *TINY, "--seeds", "0,1,2", "--json").json
    assert [(r["run"], r["seed"]) for r in results] == [(f"fedavg-digits-s{n}", n) for n in (0, 1, 2)]
    alone = fedscope("train", *TINY, "--seed", "1", "--name", "alone", "--json").json
    assert alone["accuracy"] == results[1]["accuracy"]
    table = fedscope("train", *TINY, "--seeds", "0,1,2", "--name", "fedavg-digits", "--resume").out
    finals = [r["accuracy"] for r in results]
    assert "mean ± sd of 3" in table
    assert f"{mean(finals):.2%} ± {stdev(finals):.2%}" in table
    assert fedscope("train", *TINY, "--seeds", "3,2", "--json").json[0]["run"] == "fedavg-digits-2-s3"


def test_an_interrupted_row_goes_on_with_the_same_settings(fedscope: Command) -> None:
    wanted = fedscope("train", *TINY, "--seeds", "0,1", "--lr", "0.02", "--name", "whole", "--json").json
    assert fedscope("train", *TINY, "--seed", "0", "--lr", "0.02", "--name", "cut-s0").code == 0
    again = ("--resume", "--name", "cut", "--seeds", "0,1", "--registry", "runs", "--json")
    resumed = fedscope("train", *again).json
    assert [r["accuracy"] for r in resumed] == [r["accuracy"] for r in wanted]
    settings = RunRegistry(Path("runs")).run("cut-s1").manifest().settings
    assert (settings.seed, settings.lr, settings.rounds) == (1, 0.02, 2)


def test_the_mean_leaves_out_what_diverged(fedscope: Command) -> None:
    done = fedscope("train", *TINY, "--lr", "1e30", "--seeds", "0,1")
    assert (done.code, "mean ± sd of 0" in done.out) == (2, True)
    assert "fedavg-digits-s0 in round 1, fedavg-digits-s1 in round 1 diverged" in done.err


@pytest.mark.parametrize(
    ("accuracies", "printed"),
    [
        ((0.5, 0.7, None), "60.00% ± 14.14% of 2"),
        ((0.5, None, math.nan), "50.00% ± – of 1"),
        ((0.5, 0.7), "60.00% ± 14.14%"),
        ((None, None), "–"),
    ],
)
def test_the_mean_leaves_out_runs_without_an_accuracy(
    accuracies: tuple[float | None, ...], printed: str, fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        TrainedRun(
            f"a-s{seed}", "runs", "finished", seed, 0.1, "final.pt", "best.pt", accuracy=0.25,
            best_accuracy=best, best_half_accuracy=None, chosen_on="test", rounds=2,
        )
        for seed, best in enumerate(accuracies)
    ]  # fmt: skip
    monkeypatch.setattr("fedscope.workflows.train.train_runs.train", lambda *_: found)
    (row,) = (
        line for line in fedscope("train", "--seeds", "0,1").out.splitlines() if line.startswith("mean ± sd")
    )
    label, *_, accuracy, best = (cell.strip() for cell in row.split("│"))
    assert (label, accuracy, best) == (f"mean ± sd of {len(accuracies)}", "25.00% ± 0.00%", printed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seeds", "0,1", "--seed", "3"), "leave one of them out"),
        (("--seeds", "0,0"), "has a seed twice"),
        (("--seeds", "a"), "takes seeds such as 0,1,2, not 'a'"),
        (
            ("--seeds", "0,1", "--resume", "--name", "none"),
            "--resume needs the --name of runs such as NAME-s0",
        ),
    ],
)
def test_what_it_refuses(fedscope: Command, arguments: tuple[str, ...], said: str) -> None:
    done = fedscope("train", *TINY, *arguments)
    assert (done.code, said in done.err) == (2, True), done.err
