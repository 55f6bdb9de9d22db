"""Federated LoRA: what is trained, sent and kept is the adapters alone, with every method of parameters."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

import fedscope
from fedscope.api.sources import On
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.layout import LOCK
from fedscope.checkpoints.registry.client_rows import read_rows
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.cli.main import call
from fedscope.data.sets import dataset_catalogue
from fedscope.errors import UserError
from fedscope.federated.methods import known
from fedscope.figures.surface.landscape_figures import caption
from fedscope.figures.text.hessian_table import hessian_table
from fedscope.lora import LoRA
from fedscope.models.pretrained import lora_adapters
from fedscope.models.pretrained.networks import quietly
from fedscope.own import digest
from fedscope.streams import seeded
from fedscope.task_loss import IGNORED
from tests import tiny
from tests.processes import PATIENCE, started

DATA = "text:corpus.jsonl:16"
REFUSED = {
    *("moon", "mixup", "gradaug", "fedalign", "man", "fedntd", "fedsol", "fedlc", "fedrs", "feddecorr"),
    "stochdepth",
}  # of classes, images, activations or residual blocks
NUMBERS = 2 * (2 * tiny.WIDTH + 3 * tiny.WIDTH * 2)  # of A and B on the c_attn of both blocks


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> Path:
    """A folder with the network and a corpus, which is the working directory."""
    folder = tmp_path_factory.mktemp("lora")
    (folder / "base").symlink_to(language_model)
    tiny.write_corpus(folder / "corpus.jsonl")
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def options(**changes: object) -> list[str]:
    """Return the options of a small run."""
    given = {
        "model": "hf:base", "data": DATA, "lora": "r=2,alpha=8,targets=c_attn", "clients": 10,
        "partition": "iid", "rounds": 5, "epochs": 1, "batch_size": 4, "lr": 0.5,
        "weight_decay": 0.0, "threads": 1,
    }  # fmt: skip
    return [
        word
        for name, value in (given | changes).items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def trained(name: str, **changes: object) -> RunFolder:
    assert call(("train", *options(**changes), "--name", name, "--registry", "runs")) == 0
    return RunRegistry(Path("runs")).run(name)


def everything(run: RunFolder) -> list[object]:
    """Return all that a run leaves behind, but for what depends on the machine's mood."""
    moods = ("seconds", "seconds_in", "peak_memory_bytes", "workers")
    lines = [{k: v for k, v in m.to_json().items() if k not in moods} for m in run.metrics()]
    return [[load_checkpoint(path).sha256 for path in (run.final, run.best, *run.clients())], lines]


@pytest.mark.slow
def test_a_run_of_ten_clients_that_is_killed_goes_on_to_the_same_bits() -> None:
    whole, cut = trained("whole"), RunFolder(Path("runs/cut").absolute())
    for rounds in (1, 3):  # killed in the first round after so many
        again = ["--resume"] if cut.folder.exists() else []
        with started("train", *options(), "--name", "cut", "--registry", "runs", *again) as command:
            deadline = time.monotonic() + PATIENCE
            while len(cut.metrics()) < rounds and command.code is None and time.monotonic() < deadline:
                time.sleep(0.002)
            assert command.code is None
            os.kill(command.pid, signal.SIGKILL)
    assert not cut.final.exists()
    assert call(("train", "--resume", "--name", "cut", "--registry", "runs")) == 0
    assert everything(cut) == everything(whole)
    assert {path.name for path in cut.folder.rglob(".*")} <= {LOCK}
    losses = [line.loss for line in whole.metrics()]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def test_checkpoints_and_traffic_are_the_adapters_and_the_base_is_named_and_hashed(place: Path) -> None:
    run = trained("kept", rounds=1)
    checkpoint = load_checkpoint(run.final)
    assert sum(tensor.numel() for tensor in checkpoint.state.values()) == NUMBERS
    assert all(".lora_" in name for name in checkpoint.state)
    assert checkpoint.info.model.name == "hf:base"
    assert checkpoint.info.model.lora == LoRA(2, 8.0, ("c_attn",), transposed=True, task="CAUSAL_LM")
    assert checkpoint.info.model.source == digest("hf:base")
    (line,) = run.metrics()
    assert line.bytes_up == line.bytes_down == 10 * 4 * NUMBERS
    assert list(verify_run(run, lambda name: None)) == []


def test_one_client_with_one_batch_takes_pefts_step() -> None:
    """W, A, B ↦ A, B − η∇ of the mean over all tokens, from the same A."""
    run = trained("step", clients=1, rounds=1, batch_size=1000)
    data = dataset_catalogue.load(DATA, model="hf:base").train
    with seeded(0):
        model = lora_adapters.adapted("hf:base", LoRA(2, 8.0, ("c_attn",)))
    start = load_checkpoint(run.initial).state
    model.load_state_dict(start)
    assert data.targets is not None
    assert isinstance(data.images, torch.Tensor)
    kept = data.targets != IGNORED
    loss = torch.nn.functional.cross_entropy(model(data.images)[kept], data.targets[kept])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    found = load_checkpoint(run.final).state
    for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(found[name], p.detach() - 0.5 * gradient, rtol=1e-5, atol=1e-7)
    assert any(not torch.equal(found[name], start[name]) for name in start)


@pytest.mark.parametrize("method", known())
def test_methods_of_parameters_run_and_others_say_why_not(method: str) -> None:
    def train() -> fedscope.Run:
        return fedscope.train(
            method=method, model="hf:base", data=DATA, lora="r=1", clients=2, rounds=2, epochs=1,
            batch_size=16, lr=0.01, partition="iid", threads=1, registry="methods", save_clients="none",
        )  # fmt: skip

    if method in REFUSED:
        with pytest.raises(UserError, match=r"acts on|cannot have|not known to have|reads"):
            train()
    else:
        assert len(train().metrics) == 2


def test_topics_are_dealt_out_as_classes_are() -> None:
    run = trained("topics", rounds=1, partition="fixed_classes", classes_per_client=1, clients=3)
    labels = dataset_catalogue.load(DATA, model="hf:base").train.labels
    spec = run.manifest().rows
    assert spec
    held = read_rows(run.folder / "rows.zz", spec).clients
    assert sum(map(len, held)) == len(labels)
    assert sorted({int(label) for label in labels[torch.from_numpy(rows)]} for rows in held) == [
        {0},
        {1},
        {2},
    ]


def test_the_result_has_curvature_a_landscape_and_a_folder_of_pefts(tmp_path: Path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    run = trained("measured", clients=2, rounds=2)
    on: On = {"registry": "runs", "samples": 24, "seed": 0}
    found = fedscope.measure("measured", probes=4, **on)
    assert found.record.lambda_max.value is not None
    assert found.record.problem.lora == "r=2,alpha=8,targets=c_attn"
    assert "model hf:base, lora r=2,alpha=8,targets=c_attn, method" in hessian_table([found.record]).notes[0]
    plane = fedscope.landscape("measured", grid=3, span=0.5, **on)
    assert torch.tensor(plane.to_dict()["loss"]).shape == (3, 3)
    assert caption(plane.records[0]).endswith("; in the LoRA subspace r=2,alpha=8,targets=c_attn")
    for kind in ("peft", "pretrained"):
        out = str(tmp_path / kind)
        assert call(("runs", "export", "measured", "--format", kind, "--out", out, "--registry", "runs")) == 0
    x = tiny.sequences(2, 12, 40)
    with quietly(), torch.no_grad():
        loaded = peft.PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained("base"), tmp_path / "peft"
        )
        whole = AutoModelForCausalLM.from_pretrained(tmp_path / "pretrained")
        ours = fedscope.load("measured", **on).model(x)
        base = AutoModelForCausalLM.from_pretrained("base")(x).logits
    assert torch.allclose(loaded(x).logits, ours, atol=1e-6)
    assert torch.allclose(whole(x).logits, ours, atol=1e-5)
    assert not torch.allclose(base, ours, atol=1e-3)
    again = fedscope.measure(
        tmp_path / "peft", model="hf:base", data=DATA, probes=4, samples=24, seed=0, batch_size=24
    )
    assert again.record.problem.lora == found.record.problem.lora
    known, other = found.record.lambda_max, again.record.lambda_max
    assert other.value == pytest.approx(known.value, rel=1e-3)
    assert run.final.stat().st_size < 20_000


def test_a_base_that_has_changed_is_refused_and_another_place_of_it_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language_model: Path
) -> None:
    shutil.copytree(language_model, tmp_path / "base")
    tiny.write_corpus(tmp_path / "corpus.jsonl")
    monkeypatch.chdir(tmp_path)
    trained("a", clients=2, rounds=1)
    on: On = {"registry": "runs", "samples": 4, "split": "test"}
    before = fedscope.measure("a@0", probes=4, **on)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(
        UserError, match=r"hf:base is not to be found .*new place: --model hf:moved; or fetch"
    ):
        fedscope.load("a", **on)
    assert fedscope.load("a", **on | {"model": "hf:moved"}).info["run"] == "a"
    tiny.write_language_model(tmp_path / "base", seed=1)
    with pytest.raises(UserError, match="hf:base has changed since training"):
        fedscope.load("a", **on)
    assert "has changed" in " ".join(fedscope.load("a", **on | {"model": "hf:base"}).table().notes)
    trained("b", clients=2, rounds=1)  # begins with the same adapters
    after = fedscope.measure("b@0", probes=4, **on)
    assert after.record.checkpoint.sha256 == before.record.checkpoint.sha256
    assert after.lambda_max.value != pytest.approx(before.lambda_max.value, rel=1e-2)


def test_a_run_is_measured_on_its_data_in_another_place_and_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language_model: Path
) -> None:
    (tmp_path / "base").symlink_to(language_model)
    corpus = tiny.write_corpus(tmp_path / "corpus.jsonl")
    monkeypatch.chdir(tmp_path)
    trained("a", clients=2, rounds=1)
    on: On = {"registry": "runs", "samples": 8, "seed": 0}
    before = fedscope.measure("a", probes=2, **on).record
    tiny.write_corpus(tmp_path / "other.jsonl", count=30)
    corpus.rename(tmp_path / "moved.jsonl")
    with pytest.raises(UserError, match=r"name its new place: --data text:moved\.jsonl:16$"):
        fedscope.load("a", **on)
    after = fedscope.measure("a", probes=2, **on | {"data": "text:moved.jsonl:16"}).record
    assert (after.samples_sha256, after.lambda_max.value) == (before.samples_sha256, before.lambda_max.value)
    assert (after.problem.dataset, after.checkpoint.run) == ("text:moved.jsonl:16", "a")
    with pytest.raises(
        UserError, match=r"is not what a was trained on, .* on other data, add --model hf:base"
    ):
        fedscope.load("a", **on | {"data": "text:other.jsonl:16"})
    other = fedscope.measure("a", probes=2, **on | {"data": "text:other.jsonl:16", "model": "hf:base"}).record
    assert other.samples_sha256 != before.samples_sha256
    assert other.checkpoint.sha256 == before.checkpoint.sha256
    assert other.problem.lora == before.problem.lora
    tiny.write_language_model(tmp_path / "whole", seed=1)
    now, then = digest("hf:whole")[:8], digest("hf:base")[:8]
    for data in ({}, {"data": "text:other.jsonl:16"}):
        with pytest.raises(
            UserError, match=rf"hf:whole \({now}\) are not those of hf:base \({then}\), which a was"
        ):
            fedscope.load("a", **on | data | {"model": "hf:whole"})  # type: ignore[arg-type]


def test_adapters_are_of_a_pretrained_network(capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (["--lora", "r=2"], "adapts a pretrained network, --model hf:NAME, and resnet_digits is none"),
        (["--model", "hf:base", "--lora", "r=2"], "the network is a language model, and digits is no text"),
        (["--model", "hf:base", "--data", DATA, "--lora", "q=2"], "--lora takes r, alpha and targets"),
        (["--model", "resnet8", "--data", DATA], "add --model hf:NAME"),
    ):
        assert call(("train", *words, "--registry", "runs")) == 2
        assert reason in " ".join(capsys.readouterr().err.split())
