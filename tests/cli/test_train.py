import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.federated.setup.federation import open_run
from fedscope.workflows.train import one_run
from fedscope.workflows.train.train_request import TrainRequest
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
    defaults = {"man.taps": "code", "man.include_logits": False}
    assert info.settings.options == {"man.zeta": 0.3, "man.half": True, **defaults}
    assert info.settings.reading == "code"
    assert info.metrics["accuracy"] == result["accuracy"]
    assert load_checkpoint(Path(result["best"])).info.round == 1
    assert "round 1/1: accuracy" in done.err


def test_names_do_not_collide(fedscope: Command) -> None:
    first, second = (fedscope("train", *TINY, "--json").json["run"] for _ in range(2))
    assert (first, second) == ("fedavg-digits", "fedavg-digits-2")


def test_a_name_that_another_process_takes_meanwhile_is_another_s(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def too_late(*given: Any, **more: Any) -> RunFolder:
        if len(taken) < 3:
            taken.append(open_run(*given, **more).name)
        return open_run(*given, **more)

    monkeypatch.setattr(one_run, "open_run", too_late)
    assert fedscope("train", *TINY, "--json").json["run"] == "fedavg-digits-4"
    assert taken == ["fedavg-digits", "fedavg-digits-2", "fedavg-digits-3"]
    taken.clear()
    named = fedscope("train", *TINY, "--name", "mine")
    assert (named.code, "is taken" in named.err) == (2, True)


def test_every_setting_reaches_the_manifest(fedscope: Command) -> None:
    given = {
        "method": "feddyn", "dataset": "digits", "augmentation": "none", "model": "resnet20",
        "partition": "dirichlet_equal", "alpha": 0.7, "clients": 4, "participation": 0.5,
        "sampling": "bernoulli", "rounds": 4, "epochs": 3, "batch_size": 16, "lr": 0.05, "lr_decay": 0.9,
        "momentum": 0.5, "nesterov": True, "weight_decay": 0.002, "clip": 5.0, "reading": "code",
        "seed": 3, "save_clients": "none", "keep_every": 1, "precision": "fp32", "stack": 2,
        "train_samples": 800, "test_samples": 200, "head": True, "weights": "uniform", "drop_last": True,
        "optimizer_state": "client", "exhausted": "refill", "memory": "keep", "clients_limit": 1,
        "steps_limit": 2, "evaluate_on": "test", "eval_model": "sel", "eval_drop_last": True, "target": 0.5,
        "shift": "bernoulli", "shift_probability": 0.1, "shift_sequence": 2, "shift_metric": "mean_current",
        "shortcut": "B", "validation": 0.1, "probe_curvature": 1, "probe_samples": 16, "lr_warmup": 1,
        "lr_schedule": "step", "lr_step": 2, "stragglers": 0.5, "straggler_min": 2, "keep_steps": "2:all:all",
    }  # fmt: skip
    flags = [
        part
        for key, value in given.items()
        for part in (
            [f"--{key.replace('_', '-')}"] if value is True else [f"--{key.replace('_', '-')}", str(value)]
        )
    ]
    assert fedscope("train", *flags, "--registry", "runs", "--name", "all", "--device", "cpu").code == 0
    settings = RunRegistry(Path("runs")).run("all").manifest().settings.model_dump()
    assert {key: settings[key] for key in given} == given
    others = {  # for other partitions, data and networks, instead of epochs and SGD, or not under a shift
        "phi", "rho", "shards", "classes_per_client", "test_data", "local_steps", "lr_min", "optimizer",
        "adam_beta1", "adam_beta2", "adam_eps", "lora", "evaluate_every", "loss",
    }  # fmt: skip
    assert set(given) | others | {"options", "device", "threads", "compile"} == set(Settings.model_fields)


def test_a_preset_is_the_start_of_the_settings(fedscope: Command, cifar_dir: Path) -> None:
    short = ("--rounds", "1", "--clients-limit", "1", "--steps-limit", "1", "--test-samples", "20")
    done = fedscope(
        "train", "--preset", "man/t1/cifar100/delta0.3", "--method", "feddyn+man", *short,
        "--data-dir", str(cifar_dir), "--registry", "runs", "--name", "tiny", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    manifest = RunRegistry(Path("runs")).run("tiny").manifest()
    settings = manifest.settings
    assert (settings.clients, settings.alpha, settings.seed, settings.clip) == (100, 0.3, 83217, 10.0)
    assert settings.options["man.zeta"] == 0.15
    assert manifest.preset is not None
    assert manifest.preset.name == "man/t1/cifar100/delta0.3"
    assert manifest.preset.overridden[0] == "rounds 500 → 1"
    assert "clients_limit unset → 1" in manifest.preset.overridden
    assert list(manifest.preset.provisional) == ["man.zeta"]
    assert "man.zeta 0.15 is provisional (0.15 by the paper" in " ".join(done.err.split())
    assert done.json["rounds_to_target"] is None
    again = ("--data-dir", str(cifar_dir), "--registry", "runs", "--name", "tiny", "--resume")
    assert "1+" in fedscope("train", *again).out  # all its settings are those of the run
    other = fedscope("train", "--preset", "fedalign/t1", *again)
    assert (other.code, "started with --preset man/t1/cifar100/delta0.3" in other.err) == (2, True)


def test_rounds_of_a_method_beyond_those_of_the_run_are_told(fedscope: Command) -> None:
    few = ("--clients", "2", "--epochs", "1", "--rounds", "2", "--method", "swa")
    told = fedscope("train", *few, "--set", "swa.start=3", "--name", "late").err
    assert "swa.start 3 lies beyond the run's 2 rounds; set it by --set swa.start=ROUND" in " ".join(
        told.split()
    )
    assert "beyond the run" not in fedscope("train", *few, "--set", "swa.start=2", "--name", "in-time").err


def test_fedbn_of_a_network_without_batchnorm_is_told(fedscope: Command) -> None:
    few = ("--clients", "2", "--epochs", "1", "--rounds", "1", "--method", "fedbn")
    told = " ".join(fedscope("train", *few, "--model", "mlp_digits", "--name", "none").err.split())
    assert "mlp_digits has none of the tensors that fedbn leaves with its clients" in told


def test_without_options_it_trains_fedavg_on_digits(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, object] = {}

    def stop(request: TrainRequest, *_: object) -> None:
        seen.update(request.settings)
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscope.workflows.train.train_runs.train", stop)
    assert fedscope("train").code == 130
    assert seen == {}
    assert (Settings().method, Settings().dataset) == ("fedavg", "digits")


def test_resume_finishes_what_is_there(fedscope: Command, run: RunFolder) -> None:
    settings = ("--clients", "3", "--rounds", "2", "--epochs", "1")
    done = fedscope("train", *settings, "--name", run.name, "--resume", "--json")
    assert done.json["final"] == str(run.final)
    assert "tiny has its 2 rounds; with more --rounds it goes on" in done.err
    by_name = fedscope("train", "--name", run.name, "--resume", "--json")
    assert by_name.json == done.json
    refused = fedscope("train", *settings, "--lr", "0.2", "--name", run.name, "--resume")
    assert (refused.code, "lr 0.05 → 0.2" in refused.err) == (2, True)


def test_runs_list_and_show(fedscope: Command, run: RunFolder) -> None:
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
    table = fedscope("runs", "show", "tiny").out
    assert hashes["final.pt"][:12] in table
    assert "0.4835 MB" in table  # 2 rounds × 3 clients × (19,938 + 208) floats of 4 bytes
    assert "– checkpointing" in table
    assert json.dumps(rows)


def test_an_empty_registry_is_not_an_error(fedscope: Command) -> None:
    done = fedscope("runs", "list", "--registry", "none")
    assert (done.code, done.out) == (0, "")
    assert "`fedscope train` makes one" in done.err


def test_tensorboard_gets_every_number(fedscope: Command, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    options = ("--model", "mlp_digits", "--clients", "3", "--epochs", "1", "--registry", "r", "--name", "a")
    assert fedscope("train", *options, "--rounds", "2", "--log", "tensorboard").code == 0
    events = EventAccumulator(str(tmp_path / "r" / "a" / "tensorboard"))
    events.Reload()
    metrics = [json.loads(line) for line in (tmp_path / "r" / "a" / "metrics.jsonl").read_text().splitlines()]
    for name in ("accuracy", "loss", "bytes_up", "gradients"):
        assert [e.value for e in events.Scalars(name)] == pytest.approx([m[name] for m in metrics])
        assert [e.step for e in events.Scalars(name)] == [1, 2]
    assert events.Scalars("seconds_in/compute")[0].value > 0
    assert events.Scalars("clients")[0].value == 3


def test_without_tensorboard_it_says_what_to_install(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    done = fedscope("train", "--model", "mlp_digits", "--rounds", "1", "--log", "tensorboard")
    assert done.code == 2
    assert "pip install 'fedscope[tensorboard]'" in done.err


def test_parts_of_the_data(fedscope: Command, tmp_path: Path) -> None:
    small = ("--model", "mlp_digits", "--rounds", "1", "--clients", "4", "--partition", "iid")
    done = fedscope(
        "train", *small, "--train-samples", "200", "--test-samples", "50", "--registry", "r", "--name", "a"
    )
    assert done.code == 0
    shown = fedscope("runs", "show", "a", "--registry", "r", "--json").json
    assert shown["manifest"]["settings"]["train_samples"] == 200
    assert shown["manifest"]["data"]["train_samples"] == 200
    assert shown["manifest"]["data"]["test_samples"] == 50
    for split, count in (("train", 200), ("test", 50)):  # the analysis is of the data that the run used
        options = ("--split", split, "--samples", "all", "--probes", "2", "--registry", "r", "--json", "-")
        assert fedscope("hessian", "a", *options).json["problem"]["samples"] == count
    assert shown["metrics"][0]["gradients"] == 4 * 2 * 2  # 50 samples each, batches of 32, two epochs
    refused = fedscope("train", *small, "--train-samples", "9999")
    assert (refused.code, "more than the 1437 there are" in refused.err) == (2, True)


def test_what_does_not_go_together(fedscope: Command) -> None:
    for other in (("--compile",), ("--precision", "bf16")):
        done = fedscope("train", "--stack", "4", *other)
        assert (done.code, "without --compile and" in done.err) == (2, True)
    done = fedscope("train", "--method", "feddyn+fedpd")
    assert (done.code, "stands twice" in done.err) == (2, True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_training_is_near_the_plain_one(fedscope: Command) -> None:
    if shutil.which("g++") is None and shutil.which("c++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    losses = []
    for flag in ((), ("--compile",)):
        name = ("--name", f"run{len(flag)}", "--registry", "r")
        options = (
            "--model",
            "mlp_digits",
            "--method",
            "man",
            "--clients",
            "2",
            "--rounds",
            "2",
            "--threads",
            "1",
        )
        assert fedscope("train", *options, *name, *flag).code == 0
        losses.append([m.loss for m in RunRegistry(Path("r")).run(name[1]).metrics()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
