"""What the commands write may be read by those alone whom the umask lets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.main import call

SMALL = ("--samples", "16", "--threads", "1")
COMMANDS = [
    ("train", "--name", "new", "--clients", "2", "--rounds", "1", "--epochs", "1", "--method", "scaffold",
     "--log", "tensorboard", "--json", "train.json"),
    ("hessian", "tiny", *SMALL, "--probes", "2", "--tol", "0.5", "--figure", "hessian.png",
     "--json", "hessian.json"),
    ("plot-landscape", "tiny", *SMALL, "--directions", "random", "--grid", "3", "--json", "landscape.json"),
    ("plot-landscape", "--from", "landscape.json", "--out", "landscape.html"),
    ("plot-hessian", "hessian.json", "--out", "again.svg"),
    ("plot-runs", "tiny"),
    ("data", "plot-partition", "tiny"),
    ("report", "tiny", "--no-compute"),
    *(("runs", "export", "tiny", "--format", kind, "--out", kind)
      for kind in ("state_dict", "safetensors", "config")),
    ("runs", "push", "tiny", "place"),
    ("runs", "pull", "tiny", "place", "--name", "copy"),
    ("runs", "tag", "copy", "good"),
    ("runs", "add", "state_dict", "--model", "resnet_digits", "--dataset", "digits", "--name", "added"),
    ("runs", "rebuild"),
    ("methods", "list"),
    ("figures", "index", "--out", "."),
]  # fmt: skip


@pytest.fixture
def _private() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_private")
def test_all_that_is_written_is_private_under_a_private_umask(
    copied: RunRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSCOPE_CACHE", str(tmp_path / "cache"))
    old = set(tmp_path.rglob("*"))
    for command in COMMANDS:
        assert call(command) == 0, command
    assert copied.has("new")
    new = [path for path in tmp_path.rglob("*") if path not in old]
    assert len(new) > 60
    assert [path for path in new if path.lstat().st_mode & 0o077] == []
