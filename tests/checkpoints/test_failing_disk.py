"""Registries on disks that fail: each door, each error of the system. One line, code 2, nothing lost."""

import errno
import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope import storage
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, load_checkpoint
from fedscope.checkpoints.registry.run_registry import NameTakenError, RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import is_busy, verify_root, verify_run
from fedscope.cli.main import call
from fedscope.errors import MENDS, BusyError, UserError
from tests.checkpoints.cases import manifest, small_run

MANIFEST = "registry/small/manifest.json"  # says first what is to be deleted
CODES = (errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EMFILE, errno.EXDEV, errno.EBUSY, errno.EROFS)
DOORS = {  # the call of the system that fails, and commands that go through it
    "fsync": ("tag small new", "delete small --yes", "export small --out out.pt", "push small there"),
    "rename": ("delete small --yes", "pull small kept --name new"),
    "replace": ("export small --out out.pt", "push small there", "pull small kept --name new"),
    "mkdir": ("push small there", "pull small kept --name new"),
    "unlink": ("tag small good --remove", "delete small --checkpoint best.pt --yes"),
    "flock": ("delete small --yes", "push small there"),
}
CASES = [(door, line, code) for door, lines in DOORS.items() for line in lines for code in CODES]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a registry and a remote of its run."""
    root = tmp_path_factory.mktemp("kept")
    small_run(root / "registry")
    where = ("--registry", str(root / "registry"))
    assert call(["runs", "push", "small", str(root / "kept"), *where]) == 0
    return root


@pytest.fixture
def here(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the working directory."""
    shutil.copytree(kept, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "registry")
    return tmp_path / "here"


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(("door", "line", "code"), CASES)
def test_a_disk_that_fails_is_told_in_one_line_and_nothing_is_lost(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    door: str,
    line: str,
    code: int,
) -> None:
    before = content(here)
    with monkeypatch.context() as patch:
        patch.setattr(fcntl if door == "flock" else os, door, failing(code))
        assert call(["runs", *line.split()]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    mend = next(text for text, codes in MENDS.items() if code in codes)
    assert re.fullmatch(
        rf"Error: ((registry|there)/\S+|\S+/out\.pt): {os.strerror(code)}; {re.escape(mend)}", said
    )
    if line.startswith("delete") and not (here / "registry" / "small").exists():
        return  # under a hidden name, as after a kill
    after = content(here)
    assert {name: after.get(name) for name in before if name != MANIFEST} == {
        name: one for name, one in before.items() if name != MANIFEST
    }
    assert list(verify_run(RunFolder(here / "registry" / "small"))) == []
    assert call(["runs", *line.split()]) == 0  # when the disk is mended


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_runs_are_read_and_not_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(code))
    before = content(here)
    for line in (
        "delete small --yes",
        "delete small --checkpoint best.pt --yes",
        "pull small kept --name new",
    ):
        assert call(["runs", *line.split()]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert "the file system has no locks" in said
        assert "Lustre: -o flock" in said
    assert {name: one for name, one in content(here).items() if ".new.pull" not in name} == before
    for line in ("export small --out out.pt", "push small there", "verify small"):
        assert call(["runs", *line.split()]) == 0
    assert not is_busy(RunFolder(here / "registry" / "small"))
    with pytest.raises(UserError, match="no locks"):
        RunRegistry(here / "registry").create(manifest("another"))
    assert not (here / "registry" / "another").exists()


@pytest.mark.parametrize("leads", ["nothing", "itself", "nothing above"])
def test_a_registry_that_is_a_link_to_nothing_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], leads: str
) -> None:
    (here / "scratch").symlink_to("scratch" if leads == "itself" else "gone")
    root = str(here / "scratch" / ("deep" if leads == "nothing above" else ""))
    lines = ("pull small kept", "pull small kept --name new", "tag small x", "list",
             "delete small --yes", "verify", "rebuild")  # fmt: skip
    for line in lines[:2] if leads == "nothing above" else lines:
        assert call(["runs", *line.split(), "--registry", root]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"Error: {here}/scratch is a link that leads to nothing ("), line
    new = manifest("fedavg-digits")
    with pytest.raises(UserError, match="leads to nothing"):  # and not tried for ever
        RunRegistry(Path(root)).under_free_name(
            "a", lambda name: RunRegistry(Path(root)).create(new.model_copy(update={"name": name}))
        )
    assert (here / "scratch").is_symlink()


def test_a_name_is_tried_again_only_if_it_is_taken(tmp_path: Path) -> None:
    tried = list[str]()

    def make(name: str) -> None:
        tried.append(name)
        raise NameTakenError("said so")

    with pytest.raises(NameTakenError):
        RunRegistry(tmp_path).under_free_name("a", make)
    assert tried == ["a"]


def test_a_run_whose_folder_goes_while_it_is_locked_is_not_being_trained(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lock = RunFolder(here / "registry" / "small"), fcntl.flock

    def gone(handle: int, how: int) -> None:
        run.folder.rename(run.folder.with_name("elsewhere"))
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", gone)
    with pytest.raises(BusyError, match="'small' has just been deleted"), run.locked():
        pytest.fail("it was locked")


def test_a_folder_that_is_made_anew_while_it_is_locked_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    lock = fcntl.flock

    def anew(handle: int, how: int) -> None:
        (tmp_path / "run").rename(tmp_path / "gone")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / ".lock").touch()
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", anew)
    with pytest.raises(BlockingIOError), storage.locked(tmp_path / "run" / ".lock", below=tmp_path):
        pytest.fail("it was locked")


def test_a_linked_run_is_not_being_trained(here: Path) -> None:
    (here / "registry" / "linked").symlink_to("small")
    faults = [fault.problem for fault in verify_run(RunFolder(here / "registry" / "linked"))]
    assert faults == ["is of a run named 'small'; rename the folder"]
    assert not is_busy(RunFolder(here / "registry" / "linked"))


def test_a_run_inside_another_is_not_deleted_with_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move(small_run(here / "registry", "other").folder, here / "registry" / "small" / "tags")
    assert call(["runs", "delete", "small", "--yes"]) == 2
    assert "registry/small/tags/other is another run; move it out of small first" in capsys.readouterr().err
    shutil.move(here / "registry" / "small" / "tags" / "other", here)
    assert call(["runs", "delete", "small", "--yes"]) == 0


def test_a_long_name_is_written_and_a_longer_one_refused_before_the_work(here: Path) -> None:
    assert call(["runs", "export", "small", "--out", "x" * 250]) == 0
    assert call(["runs", "export", "small", "--out", "x" * 256]) == 2


def test_a_folder_whose_name_is_no_utf_8_is_read(here: Path) -> None:
    odd = Path(os.fsdecode(b"odd-\xff"))
    (here / "registry").rename(odd)
    assert call(["runs", "verify", "--registry", str(odd)]) == 0
    assert load_checkpoint(odd / "small" / "final.pt").info.run == "small"
    assert describe_checkpoint(odd / "small" / "final.pt")[0].run == "small"


def test_an_index_that_cannot_be_opened_is_not_damaged(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = RunRegistry(here / "registry")
    before = registry.rows()

    def unable(*_: object, **__: object) -> None:  # as of a path of 3,700 letters
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", unable)
    assert list(verify_root(registry)) == []
    assert registry.rows() == before


def test_a_failing_disk_is_no_damage(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "registry" / "small" / "final.pt"
    monkeypatch.setattr("torch.load", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        load_checkpoint(path)


def test_a_read_that_fails_names_its_file(here: Path) -> None:
    file = storage.open_regular(here / "registry" / "small" / "final.pt")
    os.close(file.fileno())
    for read in (lambda: file.read(9), file.read, file.close):
        with pytest.raises(
            OSError, match=r"Bad file descriptor" + (r".*final\.pt" if read != file.close else "")
        ):
            read()
