"""Full disks, limits, folders that may not be written, and locks: the old state stays whole."""

import ctypes
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry import index
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel.places import remote
from fedscope.checkpoints.travel.push import push_run
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.cli.main import call
from fedscope.errors import UserError
from fedscope.workflows.export import export_safetensors, export_state_dict
from tests.checkpoints.cases import in_a_process, info, manifest, small_run, state


def limited(root: Path, action: str, most: int) -> None:
    """Do ``action`` where no file may grow above ``most`` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    act(root, action)


def act(root: Path, action: str) -> None:
    registry, run = RunRegistry(root), RunFolder(root / "small")
    if action == "save":
        save_checkpoint(run.final, state(9.0, 200_000), info("small", 3))
    elif action == "manifest":
        run.write_manifest(run.manifest().model_copy(update={"created": "x" * 200_000}))
    elif action == "metrics":
        run.write_metrics([Round.model_validate({"round": 1, "text": "x" * 200_000})])
    elif action == "create":
        registry.create(manifest("new").model_copy(update={"versions": {"x": "x" * 200_000}}))
    elif action == "push":
        push_run(run, remote(str(root / "out")), lambda *_: None)
    elif action == "state_dict":
        export_state_dict(run.final, root / "out")
    elif action == "safetensors":
        export_safetensors(run.final, root / "out")


ACTIONS = ["save", "manifest", "metrics", "create", "push", "state_dict", "safetensors"]


def large_run(root: Path, size: int) -> RunFolder:
    """Return a finished run with as many numbers in its newest model, which is the best."""
    run = small_run(root)
    for path in (run.final, run.best):
        save_checkpoint(path, state(3.0, size), info("small", 3))
    return run


def content(root: Path) -> dict[str, bytes]:
    """Return all files, but for what a push has sent: without a list of it no run is there."""
    files = (p for p in root.rglob("*") if p.is_file() and "objects" not in p.parts)
    return {str(p.relative_to(root)): p.read_bytes() for p in files}


@pytest.mark.parametrize("action", ACTIONS)
def test_what_does_not_fit_changes_nothing(tmp_path: Path, action: str) -> None:
    large_run(tmp_path, 50_000)
    before = content(tmp_path)
    said = in_a_process(limited, tmp_path, action, 100_000)
    assert "File too large" in said
    assert content(tmp_path) == before
    assert in_a_process(act, tmp_path, action) == ""  # it was for the limit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", folder], capture_output=True
    ).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_leaves_the_old_checkpoint(small_disk: Path) -> None:
    run = small_run(small_disk)
    before = content(small_disk)
    for size in (260_000, 400_000):
        with pytest.raises(OSError, match="No space left on device"):
            save_checkpoint(run.final, state(9.0, size), info("small", 3))
    with pytest.raises(OSError, match="No space left on device"):
        run.write_metrics([Round.model_validate({"round": 1, "text": "x" * 2_000_000})])
    assert content(small_disk) == before
    assert list(verify_run(run)) == []


def test_a_line_that_did_not_fit_is_no_record(small_disk: Path) -> None:
    run = RunRegistry(small_disk).create(manifest("new"))
    with pytest.raises(OSError, match="No space left on device"):
        for round in range(1, 1000):
            run.append_metrics(Round.model_validate({"round": round, "text": "x" * 10_000}))
    rounds = [record.round for record in run.metrics()]
    assert rounds == list(range(1, len(rounds) + 1))
    assert len(rounds) > 50


def test_the_command_line_tells_of_a_full_disk(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large_run(tmp_path, 400_000)
    code = call(["runs", "export", "small", "--registry", str(tmp_path), "--out", str(small_disk / "a.pt")])
    assert (code, list(small_disk.iterdir())) == (2, [])
    assert "No space left on device; make room" in capsys.readouterr().err


def without_privileges(root: Path, action: str) -> None:
    """Act as a user who is bound by the permissions of files, as root is not."""
    data = (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).capset((ctypes.c_uint32 * 2)(0x20080522, 0), data):
        raise OSError(ctypes.get_errno(), "capset")
    if action == "read":
        read_all(root)
    else:
        act(root, action)


def read_all(root: Path) -> None:
    registry = RunRegistry(root)
    assert [row["name"] for row in registry.rows()] == ["small"]
    run = registry.run("small")
    assert load_checkpoint(registry.resolve("small@best")).info.round == 3
    assert list(verify_run(run)) == []
    assert run.tags() == ("good", "paper")
    for arguments in (["list"], ["show", "small"], ["verify"], ["show", "small", "--provenance"]):
        assert call(["runs", *arguments, "--registry", str(root)]) == 0


def locked_away(folder: Path, mode: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(mode)
        else:
            path.chmod(mode & 0o666)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_read_only_registry_is_read(tmp_path: Path, indexed: bool) -> None:
    root = tmp_path / "registry"
    small_run(root)
    if indexed:
        RunRegistry(root).rows()
    before = content(root)
    locked_away(root, 0o555)
    assert in_a_process(without_privileges, root, "read") == ""
    locked_away(root, 0o755)
    assert content(root) == before


@pytest.mark.parametrize("action", ACTIONS)
def test_what_may_not_be_written_is_not(tmp_path: Path, action: str) -> None:
    root = tmp_path / "registry"
    small_run(root)
    before = content(root)
    locked_away(root, 0o555)
    said = in_a_process(without_privileges, root, action)
    locked_away(root, 0o755)
    assert "Permission denied" in said
    assert content(root) == before


def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    root = tmp_path / "registry"
    run = small_run(root)
    run.final.chmod(0)
    assert "Permission denied" in in_a_process(unreadable, root)


def unreadable(root: Path) -> None:
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())
    (fault,) = verify_run(RunFolder(root / "small"))
    raise OSError(fault.problem)


def test_a_run_that_is_trained_is_not_deleted(tmp_path: Path) -> None:
    registry, run = RunRegistry(tmp_path), small_run(tmp_path)
    temporary = run.folder / ".best.pt.abcdefgh.tmp"
    temporary.touch()
    with run.locked():
        with pytest.raises(UserError, match="another process"):
            registry.delete(run)
        assert list(verify_run(run)) == []  # the temporary file may be at work
    (fault,) = verify_run(run)
    assert fault.path == "small/.best.pt.abcdefgh.tmp"
    registry.delete(run)
    assert registry.folders() == []
    assert list(tmp_path.iterdir()) == []


def test_a_locked_index_keeps_nobody_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    small_run(tmp_path)
    registry = RunRegistry(tmp_path)
    before = registry.rows()
    RunFolder(tmp_path / "small").tag("new")
    monkeypatch.setattr(index, "WAIT", 0.05)
    holder = sqlite3.connect(tmp_path / "index.sqlite")
    holder.execute("BEGIN EXCLUSIVE")
    (row,) = registry.rows()
    assert row == {**before[0], "tags": ["good", "new", "paper"]}
    holder.rollback()
    holder.close()


def test_a_moved_registry_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_run(tmp_path / "a")
    before = RunRegistry(tmp_path / "a").rows()
    shutil.move(tmp_path / "a", tmp_path / "b")
    monkeypatch.chdir(tmp_path / "b")
    here = RunRegistry(Path())
    assert here.rows() == before
    assert list(verify_run(here.run("small"))) == []
    assert load_checkpoint(here.resolve("small")).info.round == 3
