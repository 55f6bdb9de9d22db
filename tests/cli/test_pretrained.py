"""Pretrained networks on the command line: samples, blocks, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call
from tests import tiny

SMALL = ("--samples", "8", "--probes", "2", "--tol", "0.1")
DATA = "text:corpus.jsonl:16"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language_model: Path) -> None:
    """A folder with the network and a corpus, which is the working directory."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # there is nobody to ask
    (tmp_path / "base").symlink_to(language_model)
    tiny.write_corpus(tmp_path / "corpus.jsonl")
    monkeypatch.chdir(tmp_path)


def measured(*words: str) -> dict[str, object]:
    assert call(("hessian", *words, *SMALL, "--json", "out.json")) == 0
    found: dict[str, object] = json.loads(Path("out.json").read_text())
    return found


def test_a_network_is_its_own_checkpoint_and_its_blocks_are_measured() -> None:
    whole = measured("--model", "hf:base", "--data", DATA, "--blocks")
    assert whole["problem"]["model"] == "hf:base"  # type: ignore[index]
    assert whole["problem"]["samples"] == 8  # type: ignore[index]
    blocks = {one["name"]: one["value"] for one in whole["blocks"]}  # type: ignore[attr-defined]
    assert list(blocks) == [f"transformer.{part}.*" for part in ("wte", "wpe", "h.0", "h.1", "ln_f")]
    one = measured("--model", "hf:base", "--data", DATA, "--parameters", "transformer.h.1.*")
    assert one["lambda_max"]["value"] == pytest.approx(blocks["transformer.h.1.*"], rel=0.1)  # type: ignore[index]
    named = measured("base", "--model", "hf:base", "--data", DATA)
    assert named["lambda_max"] == whole["lambda_max"]
    other = measured("--model", "hf:base", "--data", DATA, "--split", "test")
    assert other["samples_sha256"] != whole["samples_sha256"]


def test_images_are_trained_on_and_measured(image_model: Path, tmp_path: Path) -> None:
    tiny.write_images(tmp_path / "images")
    shutil.copytree(image_model, tmp_path / "vit")
    found = measured("--model", "hf:vit", "--data", "images:images")  # whose file has other names than it
    assert found["problem"]["model"] == "hf:vit"  # type: ignore[index]
    train = ("train", "--model", "hf:vit", "--data", "images:images", "--clients", "2", "--partition", "iid")
    small = ("--rounds", "2", "--epochs", "1", "--threads", "1", "--batch-size", "5", "--registry", "runs")
    for name, more in (("whole", ()), ("lora", ("--lora", "r=2,targets=q_proj+v_proj"))):
        assert call((*train, *small, "--name", name, *more)) == 0
        assert call(("hessian", name, *SMALL, "--registry", "runs")) == 0
    kept = [
        load.stat().st_size for load in (RunRegistry(Path("runs")).run(n).final for n in ("whole", "lora"))
    ]
    assert kept[1] < kept[0] / 3
    assert (
        call(("runs", "export", "lora", "--format", "pretrained", "--out", "both", "--registry", "runs")) == 0
    )
    assert {"config.json", "model.safetensors", "preprocessor_config.json"} <= {
        p.name for p in Path("both").iterdir()
    }
    exported = measured("both", "--model", "hf:vit", "--data", "images:images")
    assert exported["lambda_max"] != found["lambda_max"]


@pytest.mark.usefixtures("at_once")
def test_a_whole_language_model_is_trained_and_workers_change_no_bit() -> None:
    train = (
        "train",
        "--model",
        "hf:base",
        "--data",
        DATA,
        "--clients",
        "2",
        "--partition",
        "iid",
        "--rounds",
        "2",
    )
    small = (
        "--epochs",
        "1",
        "--threads",
        "1",
        "--batch-size",
        "16",
        "--train-samples",
        "40",
        "--registry",
        "runs",
    )
    for name, more in (("one", ()), ("two", ("--workers", "2")), ("stacked", ("--stack", "2"))):
        assert call((*train, *small, "--name", name, *more)) == 0
    store = RunRegistry(Path("runs"))
    states = [torch.load(store.run(name).final)["state"] for name in ("one", "two", "stacked")]
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key])
        torch.testing.assert_close(value, states[2][key], rtol=1e-4, atol=1e-6)
    initial = torch.load(store.run("one").initial)["state"]
    assert any(not torch.equal(value, states[0][key]) for key, value in initial.items())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("hessian", "--model", "hf:nowhere", "--data", DATA), "no such folder here"),
        (("hessian", "--model", "hf:base"), "add --data text:PATH:LENGTH or images:PATH; or name the CKPT"),
        (("hessian", "--model", "hf:base", "--data", "text:nothing.txt"), "no file or folder 'nothing.txt'"),
        (("hessian", "--model", "mine:net", "--data", DATA, "base"), "add --model hf:NAME"),
        (("hessian", "--model", "hf:base", "--data", DATA, "--data-dir", "."), "has no effect"),
        (
            ("train", "--model", "hf:base", "--data", "text:corpus.jsonl:64"),
            "give text:corpus.jsonl:32 or fewer",
        ),
        (("hessian", "--model", "hf:base", "--data", "text:corpus.jsonl:64"), "at most 32 tokens"),
        (
            ("hessian", "base", "--data", DATA),
            "name the pretrained network that its weights are for: --model hf:base",
        ),
        (("train", "--model", "hf:base", "--data", DATA, "--lora", "targets=query"), "its linear layers are"),
        (("train", "--model", "hf:base", "--data", DATA, "--method", "fedlc"), "acts on classes"),
        (("train", "--model", "hf:base", "--data", DATA, "--method", "moon"), "acts on classes"),
    ],
)
def test_a_mistake_is_answered_with_its_mend(
    words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call((*words, "--registry", "runs")) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


def test_only_adapters_make_a_folder_of_pefts(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--clients", "2", "--rounds", "1", "--epochs", "1", "--threads", "1", "--train-samples", "40")
    assert call(("train", "--model", "mlp_digits", *small, "--name", "plain", "--registry", "runs")) == 0
    for kind, reason in (("peft", "holds no adapters"), ("pretrained", "no network of Hugging Face")):
        assert call(("runs", "export", "plain", "--format", kind, "--out", kind, "--registry", "runs")) == 2
        assert reason in " ".join(capsys.readouterr().err.split())
        assert not Path(kind).exists()
