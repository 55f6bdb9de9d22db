"""Folders that are no registry: nothing is written to them, listed of them, or reported about them."""

import shutil
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.models.catalogue import build
from fedscope.storage import cache_dir
from tests.cli.conftest import Command

MODULE = """
import torch
from fedscope.models.catalogue import build

def network(): return build("mlp_digits", 10, 1, torch.Generator())
def data():
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(16, 1, 8, 8, generator=generator), torch.arange(16) % 10)]
"""
OWN = ("checkpoints/best.pt", "--model", "mine:network", "--data", "mine:data", "--threads", "1")


@pytest.fixture
def project(fedscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of the user's own, whose weights lie where fedscope's registry is by default."""
    monkeypatch.delenv("FEDSCOPE_REGISTRY")
    (tmp_path / "mine.py").write_text(MODULE)
    for name in ("best.pt", "earlier/best.pt"):
        path = tmp_path / "checkpoints" / name
        path.parent.mkdir(exist_ok=True)
        torch.save(build("mlp_digits", 10, 1, torch.Generator().manual_seed(0)).state_dict(), path)
    (tmp_path / "checkpoints" / "earlier" / "manifest.json").write_text('{"name": "an app"}')
    return tmp_path / "checkpoints"


def _content(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def test_an_analysis_leaves_a_strangers_folder_as_it_was(fedscope: Command, project: Path) -> None:
    before = _content(project)
    done = fedscope("hessian", *OWN, "--probes", "4")
    assert done.code == 0, done.err
    assert "as measured before" in fedscope("hessian", *OWN, "--probes", "4").err
    assert list((cache_dir() / "analysis").glob("*.json"))
    done = fedscope("plot-landscape", *OWN, "--grid", "3", "--directions", "random", "--out", "l.svg")
    assert done.code == 0, done.err
    assert fedscope("runs", "list").code == 0
    assert _content(project) == before


def test_what_is_no_registry_has_no_faults(fedscope: Command, project: Path, run: RunFolder) -> None:
    for command in ("verify", "rebuild"):
        done = fedscope("runs", command)
        assert done.err.startswith("Error: checkpoints holds no run; name a registry's folder by --registry")
        assert (done.code, done.out) == (2, "")
    shutil.copytree(run.folder, project / "tiny")
    assert [row["name"] for row in fedscope("runs", "list", "--json").json] == ["tiny"]
    assert fedscope("runs", "verify").out == "10 files, no fault\n"
    done = fedscope("hessian", "tiny", "--samples", "64", "--probes", "4", "--threads", "1")
    assert (done.code, (project / ".analysis").is_dir()) == (0, True)


def test_a_run_that_lost_its_manifest_is_listed_and_read(
    fedscope: Command, project: Path, run: RunFolder
) -> None:
    shutil.copytree(run.folder, project / "tiny")
    (project / "tiny" / "manifest.json").unlink()
    (row,) = fedscope("runs", "list", "--json").json
    assert (row["name"], row["status"]) == ("tiny", "unreadable")
    assert "tiny cannot be read; `fedscope runs verify tiny` says why" in fedscope("runs", "list").err
    done = fedscope("runs", "show", "tiny")
    assert "checkpoints/tiny has lost its manifest.json; restore that from a copy, or" in done.err
    assert fedscope("hessian", "tiny", "--samples", "64", "--probes", "4", "--threads", "1").code == 0
    assert fedscope("runs", "delete", "tiny", "--yes").code == 0
    assert not (project / "tiny").exists()
