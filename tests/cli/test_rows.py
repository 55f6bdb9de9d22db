"""What becomes of the clients' rows when a new numpy draws partitions otherwise."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from tests.cli.conftest import Command

CLIENTS = ("--clients", "--client-weights", "global", "--client-probes", "3")
FEW = ("--samples", "16", "--tol", "0.1", "--probes", "2", *CLIENTS)


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture
def other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are drawn otherwise from now on."""
    monkeypatch.setattr(
        "fedscope.data.partition.draw_partition.numpy_stream", lambda *_: np.random.default_rng(7)
    )


def _older(run: RunFolder, folder: Path) -> RunFolder:
    """Return a copy of the run as a fedscope that stored no rows would have left it."""
    old = RunFolder(Path(shutil.copytree(run.folder, folder)))
    for path in (old.rows(), old.initial, *old.of_rounds()):
        path.unlink()
    for path in (old.final, old.best, *old.clients()):
        known = load_checkpoint(path)
        save_checkpoint(path, known.state, known.info.model_copy(update={"rows": ""}))
    old.write_manifest(run.manifest().model_copy(update={"rows": None}))
    return old


def test_digits_stay_where_rows_are_stored(
    fedscope: Command, run: RunFolder, request: pytest.FixtureRequest
) -> None:
    shutil.copytree(run.folder, "new/tiny")
    asked = ("hessian", "tiny", *FEW, "--recompute", "--registry", "new", "--json")
    before = fedscope(*asked, "-").json["cross_client"]
    assert before["rows"] == "stored"
    request.getfixturevalue("other_streams")
    again = fedscope(*asked, "again.json")
    assert "drawn again" not in again.err
    assert fedscope(*asked, "-").json["cross_client"] == before
    shutil.copy(run.final, "alone.pt")
    alone = fedscope("hessian", "alone.pt", *FEW)
    assert alone.code == 2
    assert "RUN in its registry" in alone.err


def test_older_runs_say_that_theirs_are_drawn_again(
    fedscope: Command, run: RunFolder, request: pytest.FixtureRequest
) -> None:
    _older(run, Path("old/tiny"))
    assert fedscope("runs", "verify", "--registry", "old").code == 0
    asked = ("hessian", "tiny", *FEW, "--registry", "old")
    before = fedscope(*asked, "--json", "-").json["cross_client"]
    assert before["rows"] == "redrawn"
    assert fedscope(*asked).err.count("drawn again") == 1
    request.getfixturevalue("other_streams")
    done = fedscope(*asked, "--json", "-")
    assert not done.json["reused"]
    assert done.json["cross_client"]["rows_sha256"] != before["rows_sha256"]
    assert done.json["cross_client"]["traces"] != before["traces"]
