"""Checkpoints made to grow when they are read: refused before anything is."""

import zipfile
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.container import members
from fedscope.errors import UserError
from tests.checkpoints.cases import small_run


def test_a_compressed_checkpoint_is_refused(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    with zipfile.ZipFile(run.final) as old:
        held = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(run.final, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in held.items():
            new.writestr(name, data)
    with pytest.raises(UserError, match="compressed"):
        load_checkpoint(run.final)


def test_members_that_overlap_or_repeat_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("a", bytes(10_000))
        container.writestr("b", b"")
        first, second = container.infolist()
        second.header_offset, second.file_size, second.compress_size = first.header_offset, 10_000, 10_000
    with zipfile.ZipFile(path) as container, pytest.raises(zipfile.BadZipFile, match="claim more bytes"):
        members(container, path.stat().st_size)
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("a", b"1")
        container.writestr("b", b"2")
        container.infolist()[1].filename = "a"
    with zipfile.ZipFile(path) as container, pytest.raises(zipfile.BadZipFile, match="stands twice"):
        members(container, path.stat().st_size)


def test_a_repeated_number_is_not_unfolded(tmp_path: Path) -> None:
    """A tensor of a terabyte may be one number in the file, repeated by its strides."""
    run = small_run(tmp_path)
    content = torch.load(run.final, weights_only=True)
    content["state"] = {"w": torch.ones(1).expand(1 << 38)}
    torch.save(content, run.final)
    with pytest.raises(UserError, match=r"'w' .*dense"):
        load_checkpoint(run.final)


def test_a_tensor_under_many_names_is_not_hashed_for_ever(tmp_path: Path) -> None:
    run, large = small_run(tmp_path), torch.ones(100_000)
    content = torch.load(run.final, weights_only=True)
    for count, refused in ((10, False), (100, True)):
        content["state"] = {f"w{n}": large for n in range(count)}
        torch.save(content, run.final)
        with pytest.raises(UserError, match="again and again" if refused else "content hash"):
            load_checkpoint(run.final)
