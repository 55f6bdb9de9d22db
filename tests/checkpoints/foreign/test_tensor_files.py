import json
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.foreign.tensor_files import clients_in, read
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError

STATE = OrderedDict(nn.Linear(3, 2).state_dict())


def test_what_nests_becomes_a_name(tmp_path: Path) -> None:
    optimizer = {"state": {0: {"exp_avg": torch.ones(1), "step": 3}}, "param_groups": [{"lr": 0.1}]}
    content = {"epoch": 3, "state_dict": {"model.weight": torch.ones(2)}, "optimizer": optimizer}
    torch.save(content, tmp_path / "lightning.ckpt")
    assert list(read(tmp_path / "lightning.ckpt")) == ["state_dict.model.weight", "optimizer.state.0.exp_avg"]


def test_fedscopes_own_files_are_verified_states(run: RunFolder) -> None:
    assert set(read(run.final)) == set(load_checkpoint(run.final).state)


@pytest.mark.parametrize("layout", ["single", "pickled", "shards"])
def test_hugging_face_folders(tmp_path: Path, layout: str) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "tiny"}')
    if layout == "single":
        save_file(dict(STATE), tmp_path / "model.safetensors")
    elif layout == "pickled":
        torch.save(STATE, tmp_path / "pytorch_model.bin")
    else:
        places = {"weight": "model-00001-of-00002.safetensors", "bias": "model-00002-of-00002.safetensors"}
        for name, file in places.items():
            save_file({name: STATE[name]}, tmp_path / file)
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    found = read(tmp_path)
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


def test_an_array_of_numpy(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(6.0).reshape(2, 3))
    assert read(tmp_path / "rows.npy")[""].tolist() == [[0, 1, 2], [3, 4, 5]]
    content = (tmp_path / "rows.npy").read_bytes()
    (tmp_path / "huge.npy").write_bytes(
        content.replace(b"(2, 3)", b"(1000000000000, 3)").replace(b" " * 12, b"", 1)
    )
    with pytest.raises(UserError, match="array of numbers"):
        read(tmp_path / "huge.npy")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="array of numbers"):
        read(tmp_path / "objects.npy")


def test_a_whole_module_is_refused_with_the_way_out(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2), tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"code \(torch\.nn\.modules\.linear\.Linear\)"):
        read(tmp_path / "model.pt")
    torch.save({"model": STATE, "args": Namespace(ema=nn.Linear(3, 2).weight)}, tmp_path / "hidden.pt")
    with pytest.raises(UserError, match=r"\(argparse\.Namespace\).*state_dict\(\)"):
        read(tmp_path / "hidden.pt")


def test_what_holds_no_tensors_is_refused(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "odd.pt")
    deep: object = torch.ones(1)
    for _ in range(10):
        deep = [deep]
    torch.save(deep, tmp_path / "deep.pt")
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 64)
    for path, message in (
        ("odd.pt", "holds no tensors"),
        ("deep.pt", "nests deeper than 8 levels"),
        ("bad.safetensors", "truncated or damaged"),
        ("absent.safetensors", "no such file"),
        (".", "holds neither model.safetensors nor pytorch_model.bin"),
    ):
        with pytest.raises(UserError, match=message):
            read(tmp_path / path)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", 3, ".."])
def test_an_index_names_files_of_its_folder_only(tmp_path: Path, shard: object) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(dict(STATE), tmp_path / "secret.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"weight": shard}}))
    with pytest.raises(UserError, match="index"):
        read(folder)


def test_clients_are_found_by_their_number(tmp_path: Path) -> None:
    for name in ("client_10.pt", "client_2.pt", "server.pt", "client_x.pt"):
        torch.save(STATE, tmp_path / name)
    assert clients_in(tmp_path) == {2: tmp_path / "client_2.pt", 10: tmp_path / "client_10.pt"}


def test_several_arrays_of_numpy(tmp_path: Path) -> None:
    arrays = [tensor.numpy() for tensor in STATE.values()]
    np.savez(tmp_path / "list.npz", *arrays)
    np.savez_compressed(tmp_path / "named.npz", **{name: tensor.numpy() for name, tensor in STATE.items()})
    assert list(read(tmp_path / "list.npz")) == ["arr_0", "arr_1"]
    found = read(tmp_path / "named.npz")
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)


@pytest.mark.parametrize("fault", ["objects", "texts", "bomb", "encrypted", "cut", "no zip"])
def test_a_bad_file_of_arrays_is_refused(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "bad.npz"
    if fault == "objects":
        np.savez(path, np.array([{}], dtype=object))
    elif fault == "texts":
        np.savez(path, np.array(["a"]))
    elif fault == "bomb":
        np.savez_compressed(path, np.zeros(10_000_000, dtype=np.float32))
    elif fault == "encrypted":
        np.savez(path, np.ones(3))
        content = bytearray(path.read_bytes())
        for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # its flags, in both headers
            content[content.index(mark) + place] |= 1
        path.write_bytes(content)
    elif fault == "cut":
        np.savez(path, np.ones(1000))
        path.write_bytes(path.read_bytes()[:-100])
    else:
        path.write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match=r"bad\.npz holds no arrays of numbers .*numpy\.savez\(FILE"):
        read(path)
