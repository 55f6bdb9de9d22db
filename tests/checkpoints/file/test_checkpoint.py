import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fedscope.checkpoints.file.checkpoint import content_hash, load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.schema import CheckpointInfo, ModelSpec
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError


def test_a_checkpoint_describes_itself(run: RunFolder) -> None:
    checkpoint = load_checkpoint(run.final)
    info = checkpoint.info
    assert (info.run, info.kind, info.round, info.samples) == ("tiny", "global", 2, 1437)
    assert info.settings.method == "fedavg"
    assert (info.model.name, info.model.classes, info.data.name) == ("resnet_digits", 10, "digits")
    assert (info.settings.partition, info.settings.alpha, info.settings.seed) == (
        "dirichlet_balanced",
        0.5,
        0,
    )
    assert info.versions["torch"] == torch.__version__
    client = load_checkpoint(run.client(1)).info
    assert (client.kind, client.client, client.round) == ("client", 1, 2)


def test_a_checkpoint_needs_nothing_but_torch(run: RunFolder) -> None:
    content = torch.load(run.final, weights_only=True)
    assert content["format"] == "fedscope/checkpoint/2"
    assert set(content["state"]) == set(load_checkpoint(run.final).state)


def test_a_network_described_before_heads_and_depth_is_plain(run: RunFolder) -> None:
    info = load_checkpoint(run.final).info
    old = info.model_dump(mode="json")
    for field in ("head", "keep", "schedule"):
        del old["model"][field]
    assert parse(CheckpointInfo, old, "old.pt") == info
    assert (info.model.head, info.model.keep, info.model.schedule) == (False, 1.0, "code")


@pytest.mark.parametrize("value", [{"keep": 0.0}, {"keep": 1.1}, {"schedule": "linear"}])
def test_a_depth_that_is_none_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(UserError, match=rf"m: {next(iter(value))} takes "):
        parse(ModelSpec, {"name": "resnet_digits", "classes": 10, "channels": 1, **value}, "m")


def test_saving_and_loading_returns_the_same_bits(run: RunFolder, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(run.final)
    views = {name: torch.stack([t, t])[1] for name, t in checkpoint.state.items()}
    assert save_checkpoint(tmp_path / "a.pt", views, checkpoint.info) == checkpoint.sha256
    again = load_checkpoint(tmp_path / "a.pt")
    assert again.info == checkpoint.info
    assert all(torch.equal(again.state[n], t) for n, t in checkpoint.state.items())
    # a view must not drag its whole storage into the file
    assert (tmp_path / "a.pt").stat().st_size < 1.05 * run.final.stat().st_size


def test_the_hash_is_of_the_content_alone() -> None:
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}
    same = OrderedDict(b=torch.ones(2), a=torch.arange(6.0).reshape(3, 2).T.contiguous().T.reshape(2, 3))
    assert content_hash(state) == content_hash(same)
    for other in (
        {**state, "a": state["a"].reshape(3, 2)},
        {**state, "a": state["a"].double()},
        {**state, "a": state["a"] + 1e-7},
        {"A": state["a"], "b": state["b"]},
        {"b": state["b"]},
    ):
        assert content_hash(other) != content_hash(state)


def test_a_changed_weight_is_found(run: RunFolder, tmp_path: Path) -> None:
    content = torch.load(run.final, weights_only=True)
    content["state"]["fc.bias"][0] += 1
    torch.save(content, tmp_path / "changed.pt")
    with pytest.raises(UserError, match="content hash"):
        load_checkpoint(tmp_path / "changed.pt")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_refused(run: RunFolder, tmp_path: Path, share: float) -> None:
    whole = run.final.read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"truncated or damaged|no checkpoint"):
        load_checkpoint(tmp_path / "cut.pt")


class Poison:
    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.canary,))


@pytest.mark.parametrize("kind", ["pickle", "torch", "inside"])
def test_a_pickle_that_runs_code_does_not_run(run: RunFolder, tmp_path: Path, kind: str) -> None:
    canary, file = tmp_path / "canary", tmp_path / "evil.pt"
    if kind == "pickle":
        file.write_bytes(pickle.dumps(Poison(canary)))
    elif kind == "torch":
        torch.save({"state": Poison(canary)}, file)
    else:
        content = torch.load(run.final, weights_only=True)
        torch.save({**content, "info": Poison(canary)}, file)
    for load in (load_checkpoint, read):
        with pytest.raises(UserError, match=r"asks to run code"):
            load(file)
    assert not canary.exists()
    unguarded: Callable[..., object] = (
        pickle.loads if kind == "pickle" else partial(torch.load, weights_only=False)
    )
    unguarded(file.read_bytes() if kind == "pickle" else file)
    assert canary.exists()  # the poison was real


def test_other_files_are_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_checkpoint(tmp_path / "none.pt")
    with pytest.raises(UserError, match="no such file"):
        load_checkpoint(tmp_path)
    torch.save({"w": torch.ones(1)}, tmp_path / "plain.pt")
    with pytest.raises(UserError, match="--model MODULE:FACTORY"):
        load_checkpoint(tmp_path / "plain.pt")
    torch.save(
        {**torch.load(run.final, weights_only=True), "format": "fedscope/checkpoint/9"}, tmp_path / "new.pt"
    )
    with pytest.raises(UserError, match=r"newer fedscope.*'fedscope/checkpoint/9'"):
        load_checkpoint(tmp_path / "new.pt")
    torch.save({**torch.load(run.final, weights_only=True), "info": {"run": 3}}, tmp_path / "odd.pt")
    with pytest.raises(UserError, match=r"odd\.pt: "):
        load_checkpoint(tmp_path / "odd.pt")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(UserError):
        load_checkpoint(tmp_path / "zip.pt")
    np.save(tmp_path / "array.npy", np.ones(3))
    with pytest.raises(UserError):
        load_checkpoint(tmp_path / "array.npy")
