"""Small files that make much: they are refused before anybody walks through what they hold."""

import io
import json
import struct
import zipfile
from pathlib import Path
from pickle import dumps

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import read_content
from fedscope.checkpoints.file.container import (
    ExtentError,
    check_before_containers,
    check_checkpoint,
    check_pickle,
)
from fedscope.checkpoints.foreign.tensor_files import read
from fedscope.cli.main import call
from fedscope.errors import UserError

pytestmark = pytest.mark.usefixtures("in_time")

PROTOCOL = b"\x80\x02"


def nested(depth: int) -> bytes:
    """Return instructions for sixty times the same tuple of sixty times the same tuple of … of nothing."""
    if not depth:
        return b")q\x00"
    again = bytes([ord("h"), depth - 1])
    return b"(" + nested(depth - 1) + 59 * again + b"tq" + bytes([depth])


def key(depth: int) -> bytes:
    """Return a pickle of a mapping whose key is such a tuple."""
    return PROTOCOL + b"}" + nested(depth) + b"K\x01s."


def checkpoint(path: Path, pickle: bytes) -> Path:
    """Write a container as ``torch.save`` does, with another pickle in it."""
    whole = io.BytesIO()
    torch.save({"a": torch.zeros(1)}, whole)
    with zipfile.ZipFile(whole) as before, zipfile.ZipFile(path, "w") as archive:
        for name in before.namelist():
            archive.writestr(name, pickle if name.endswith("data.pkl") else before.read(name))
    return path


def list_of_lists(depth: int) -> list[object]:
    made: list[object] = []
    for _ in range(depth):
        made = [made] * 60
    return made


def test_a_small_one_is_loaded(tmp_path: Path) -> None:
    (found,) = dict(read_content(checkpoint(tmp_path / "a.pt", key(2))).items())  # type: ignore[attr-defined]
    assert len(found) == 60
    assert check_pickle(io.BytesIO(key(3)))


@pytest.mark.parametrize("pickle", [key(4), PROTOCOL + b"}" + b")" + b"\x85" * 100_000 + b"K\x01s."])
def test_a_key_that_would_be_hashed_for_ever_is_not(
    tmp_path: Path, pickle: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "load", lambda *_, **__: None)  # it is refused before
    with pytest.raises(UserError, match=r"many entries|too deeply"):
        read_content(checkpoint(tmp_path / "a.pt", pickle))


def test_a_text_is_named_again_as_often_as_one_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscope.checkpoints.file.container.MOST_ENTRIES", 20)
    assert check_pickle(io.BytesIO(dumps(["name"] * 100)))
    with pytest.raises(ExtentError, match="many entries"):
        check_pickle(io.BytesIO(dumps([("a", "b")] * 12)))


def holds_itself() -> list[object]:
    made: list[object] = []
    made += [made] * 8
    return made


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("content", [list_of_lists(6), holds_itself()], ids=["wide", "cyclic"])
def test_a_memoised_bomb_is_refused_by_every_reader(tmp_path: Path, content: object, old: bool) -> None:
    path = tmp_path / "a.pt"
    torch.save({"state": content}, path, _use_new_zipfile_serialization=not old)
    assert path.stat().st_size < 5000
    for reader in (read, read_content):
        with pytest.raises(UserError, match="damaged"):
            reader(path)
    given = ["--model", "resnet_digits", "--dataset", "digits", "--registry", str(tmp_path / "registry")]
    assert call(["runs", "add", str(path), *given]) == 2


def test_what_grows_a_number_changes_no_later_count() -> None:
    assert not check_pickle(io.BytesIO(PROTOCOL + b"NK\x01a."))
    for broken in (b"t.", b"h\x05.", b"0.", b"\x85.", b""):
        assert not check_pickle(io.BytesIO(PROTOCOL + broken))
    assert check_pickle(io.BytesIO(key(3)))
    with pytest.raises(ExtentError):
        check_pickle(io.BytesIO(key(9)))


def test_a_folder_of_shards_that_leads_to_itself_is_refused(tmp_path: Path) -> None:
    names = {f"{i}": f"{i}.bin" for i in range(3)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    for name in names.values():
        (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(UserError, match="folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    "header",
    [b"[" * 100_000, b'{"a":' * 50_000, b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999]}}'],
)
def test_a_hostile_header_of_safetensors_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(UserError, match="damaged"):
        read(path)


def test_every_pickle_of_an_old_file_is_checked(tmp_path: Path) -> None:
    """A file of PyTorch's before 1.6 begins with several; a harmless first one hides none that follow."""
    small, path = PROTOCOL + b"K\x01.", tmp_path / "old.pt"
    path.write_bytes(3 * small)
    check_before_containers(path)
    path.write_bytes(small + key(9))
    with pytest.raises(ExtentError):
        check_before_containers(path)


def test_the_tensors_of_a_checkpoint_are_counted_in_bytes(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000), "b": torch.zeros(7, dtype=torch.float64)}, tmp_path / "a.pt")
    assert check_checkpoint(tmp_path / "a.pt") == 4000 + 56
