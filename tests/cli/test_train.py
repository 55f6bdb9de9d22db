import json
from pathlib import Path

import pytest

from fedscope.checkpoints.files import load_checkpoint
from fedscope.checkpoints.registry import Registry, Run
from fedscope.checkpoints.schema import Settings
from tests.cli.conftest import Command

TINY = ("--clients", "3", "--rounds", "1", "--epochs", "1", "--registry", "runs")


def test_json_is_the_contract(fedscope: Command) -> None:
    done = fedscope(
        "train", *TINY, "--method", "fedavg+man", "--set", "man.zeta=0.3", "--reading", "code", "--json"
    )
    result = done.json
    assert set(result) >= {"run", "registry", "final", "best", "accuracy", "rounds"}
    assert result["run"] == "fedavg+man-digits"
    info = load_checkpoint(Path(result["final"])).info
    assert info.settings.options == {"man.zeta": 0.3, "man.half": True, "man.include_logits": False}
    assert info.settings.reading == "code"
    assert info.metrics["accuracy"] == result["accuracy"]
    assert load_checkpoint(Path(result["best"])).info.round == 1
    assert "round 1/1: accuracy" in done.err


def test_names_do_not_collide(fedscope: Command) -> None:
    first, second = (fedscope("train", *TINY, "--json").json["run"] for _ in range(2))
    assert (first, second) == ("fedavg-digits", "fedavg-digits-2")


def test_every_setting_reaches_the_manifest(fedscope: Command) -> None:
    given = {
        "method": "fedprox", "dataset": "digits", "augmentation": "none", "model": "resnet_digits",
        "partition": "dirichlet_equal", "alpha": 0.7, "clients": 4, "participation": 0.5,
        "sampling": "bernoulli", "rounds": 1, "epochs": 2, "batch_size": 16, "lr": 0.05, "lr_decay": 0.9,
        "momentum": 0.5, "nesterov": True, "weight_decay": 0.002, "clip": 5.0, "reading": "code",
        "seed": 3, "save_clients": "none", "keep_every": 1,
    }  # fmt: skip
    flags = [part for key, value in given.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    assert fedscope("train", *flags, "--registry", "runs", "--name", "all", "--device", "cpu").code == 0
    settings = Registry(Path("runs")).run("all").manifest().settings.model_dump()
    assert {key: settings[key] for key in given} == given
    assert set(given) | {"options", "device", "threads"} == set(Settings.model_fields)


def test_without_options_it_trains_fedavg_on_digits(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = {}

    def stop(fields: dict[str, object], *_: object, **__: object) -> None:
        seen.update(fields)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscope.cli.train.train_run", stop)
    assert fedscope("train").code == 130
    assert seen == {}
    assert (Settings().method, Settings().dataset) == ("fedavg", "digits")


def test_resume_finishes_what_is_there(fedscope: Command, run: Run) -> None:
    settings = ("--clients", "3", "--rounds", "2", "--epochs", "1")
    done = fedscope("train", *settings, "--name", run.name, "--resume", "--json")
    assert done.json["final"] == str(run.final)
    refused = fedscope("train", *settings, "--lr", "0.2", "--name", run.name, "--resume")
    assert (refused.code, "lr 0.05 → 0.2" in refused.err) == (2, True)


def test_runs_list_and_show(fedscope: Command, run: Run) -> None:
    rows = fedscope("runs", "list", "--json").json
    assert [row["name"] for row in rows] == ["tiny"]
    table = fedscope("runs", "list").out
    assert "tiny" in table
    assert "finished" in table
    shown = fedscope("runs", "show", "tiny", "--json").json
    assert shown["manifest"]["settings"]["clients"] == 3
    assert [m["round"] for m in shown["metrics"]] == [1, 2]
    hashes = {Path(c["path"]).name: c["sha256"] for c in shown["checkpoints"]}
    assert hashes["final.pt"] == load_checkpoint(run.final).sha256
    assert {"best.pt", "0000.pt", "0001.pt", "0002.pt"} < set(hashes)
    assert hashes["final.pt"][:12] in fedscope("runs", "show", "tiny").out
    assert json.dumps(rows)


def test_an_empty_registry_is_not_an_error(fedscope: Command) -> None:
    done = fedscope("runs", "list", "--registry", "none")
    assert (done.code, done.out) == (0, "")
    assert "`fedscope train` makes one" in done.err
