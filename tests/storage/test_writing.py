import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedscope import storage
from fedscope.errors import UserError


@pytest.fixture(params=["below", "typed"])
def below(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "below" else None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, below: Path | None) -> None:
    storage.write_text(tmp_path / "a.json", "old", below=below)
    with (
        pytest.raises(OSError, match="disk full"),
        storage.atomic_file(tmp_path / "a.json", below=below) as handle,
    ):
        handle.write(b"half")
        raise OSError("disk full")
    assert (tmp_path / "a.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("how", ["whole", "appended"])
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        if how == "whole":
            storage.write_text(tmp_path / "a.json", "new", below=tmp_path)
        else:
            storage.append(tmp_path / "a.json", b"new", below=tmp_path)
    assert caught.value.filename == str(tmp_path / "a.json")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
@pytest.mark.parametrize("name", ["/proc/a.json", "/proc/deep/a.json"])
def test_a_file_system_that_takes_no_file_denies_access(name: str) -> None:
    with pytest.raises(PermissionError, match="nothing can be created there"):
        storage.write_text(Path(name), "new", below=None)


def test_a_write_replaces(tmp_path: Path, below: Path | None) -> None:
    storage.write_text(tmp_path / "deep" / "a.json", "old", below=below)
    storage.write_text(tmp_path / "deep" / "a.json", "ζ", below=below)
    assert (tmp_path / "deep" / "a.json").read_text(encoding="utf-8") == "ζ"


@pytest.mark.parametrize("durable", [True, False])
def test_only_what_a_power_cut_may_not_take_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    synced = list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    with storage.atomic_file(tmp_path / "a.npz", below=tmp_path, durable=durable) as handle:
        handle.write(b"whole")
    assert (tmp_path / "a.npz").read_bytes() == b"whole"
    assert len(synced) == 2 * durable


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, below: Path | None) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        storage.atomic_folder(tmp_path / "cache", below=below) as temporary,
    ):
        storage.write_text(temporary / "x", "half", below=temporary)
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_writers_of_a_folder_wins(tmp_path: Path) -> None:
    with storage.atomic_folder(tmp_path / "cache", below=tmp_path) as slow:
        storage.write_text(slow / "x", "slow", below=slow)
        with storage.atomic_folder(tmp_path / "cache", below=tmp_path) as fast:
            storage.write_text(fast / "x", "fast", below=fast)
    assert (tmp_path / "cache" / "x").read_text() == "fast"
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]


def test_an_exclusive_writer_is_told_that_another_was_first(tmp_path: Path) -> None:
    (tmp_path / "run" / "x").mkdir(parents=True)
    with (
        pytest.raises(FileExistsError),
        storage.atomic_folder(tmp_path / "run", below=tmp_path, exclusive=True),
    ):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_what_is_made_gets_what_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        storage.write_text(tmp_path / "deep" / "a", "", below=tmp_path)
        storage.append(tmp_path / "b", b"", below=None)
        with storage.atomic_folder(tmp_path / "c", below=tmp_path) as temporary:
            storage.new_file(temporary / "d" / "e", below=temporary).close()
        with storage.locked(tmp_path / ".lock", below=tmp_path):
            pass
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask, path


Act = Callable[[Path, Path | None], object]
WRITERS: dict[str, Act] = {
    "write_text": lambda path, below: storage.write_text(path, "new", below=below),
    "append": lambda path, below: storage.append(path, b"new", below=below),
    "touch": lambda path, below: storage.touch(path, below=below),
    "is_writable": lambda path, below: storage.is_writable(path, below=below),
    "remove": lambda path, below: storage.remove(path, below=below),
    "remove_tree": lambda path, below: storage.remove_tree(path, below=below),
    "remove_empty": lambda path, below: storage.remove_empty(path, below=below),
    "move": lambda path, below: storage.move(path, path.with_name("other"), below=below),
    "move onto": lambda path, below: storage.move(path.parent / "own", path, below=below),
    "new_file": lambda path, below: storage.new_file(path, below=below),
    "make_folder": lambda path, below: storage.make_folder(path / "x", below=below),
    "locked": lambda path, below: storage.locked(path, below=below).__enter__(),
    "atomic_folder": lambda path, below: storage.atomic_folder(path / "x", below=below).__enter__(),
    "expire": lambda path, below: storage.expire(path, 0, below=below),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root beside a folder that is somebody else's; both hold the file ``own``."""
    for folder in (tmp_path / "root", tmp_path / "elsewhere", tmp_path / "elsewhere" / "kept"):
        folder.mkdir()
        (folder / "own").write_text("old")
    os.utime(tmp_path / "elsewhere" / "kept", (0, 0))
    return tmp_path / "root"


def content(folder: Path) -> dict[str, bytes | None]:
    found = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in found}


@pytest.mark.parametrize("act", WRITERS)
@pytest.mark.parametrize("target", ["elsewhere", "elsewhere/own", "elsewhere/absent"])
def test_nothing_is_touched_through_a_link(root: Path, act: str, target: str) -> None:
    (root / "link").symlink_to(root.parent / target)
    before = content(root.parent)
    with pytest.raises(UserError, match="root/link "):
        WRITERS[act](root / "link", root)
    assert content(root.parent) == before


@pytest.mark.parametrize("act", WRITERS)
def test_nothing_is_touched_behind_a_linked_folder(root: Path, act: str) -> None:
    (root / "link").symlink_to(root.parent / "elsewhere")
    before = content(root.parent)
    with pytest.raises(UserError, match="root/link "):
        WRITERS[act](root / "link" / "own", root)
    assert content(root.parent) == before


def test_a_link_that_appears_in_the_middle_of_a_write_is_not_followed(root: Path) -> None:
    (root / "a").mkdir()
    with storage.atomic_file(root / "a" / "own", below=root) as handle:
        handle.write(b"new")
        (root / "a").rename(root / "b")
        (root / "a").symlink_to(root.parent / "elsewhere")
    assert (root / "b" / "own").read_text() == "new"
    assert (root.parent / "elsewhere" / "own").read_text() == "old"


def test_a_typed_link_is_followed_to_a_file(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "elsewhere" / "own")
    storage.write_text(root / "link", "new", below=None)
    assert (root / "link").is_symlink()
    assert (root.parent / "elsewhere" / "own").read_text() == "new"


@pytest.fixture(params=["pipe", "socket", "device", "folder"])
def strange(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Something that is neither a file nor a link."""
    path = root / "strange"
    with socket.socket(socket.AF_UNIX) as server:
        if request.param == "pipe":
            os.mkfifo(path)
        elif request.param == "socket":
            monkeypatch.chdir(root)
            server.bind("strange")  # a socket's path is 107 letters at most
        elif request.param == "device":
            path = Path("/dev/null")
        else:
            path.mkdir()
        yield path


@pytest.mark.parametrize("act", ["write_text", "append", "is_writable", "remove"])
def test_only_a_file_is_written_over(strange: Path, act: str) -> None:
    mode = strange.stat().st_mode
    for below in (strange.parent, None):
        with pytest.raises(UserError, match=r"is a (pipe|socket|device|folder)"):
            WRITERS[act](strange, below)
    assert strange.stat().st_mode == mode


def test_only_a_file_is_read(strange: Path) -> None:
    with pytest.raises(UserError, match="regular"):
        storage.read_bytes(strange)


def test_no_more_is_read_than_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert storage.read_bytes(tmp_path / "a", most=5) == b"12345"
    with pytest.raises(UserError, match="MiB"):
        storage.read_bytes(tmp_path / "a", most=4)


def test_old_folders_expire(root: Path) -> None:
    for name in ("old", "new"):
        storage.write_text(root / name / "x", "", below=root)
    (root / "link").symlink_to(root.parent / "elsewhere")
    os.utime(root / "old", (0, 0))
    os.utime(root / "link", (0, 0), follow_symlinks=False)
    storage.expire(root, 30, below=root)
    assert sorted(p.name for p in root.iterdir()) == ["link", "new", "own"]
    storage.expire(root / "absent", 30, below=root)


def test_a_path_does_not_leave_its_root(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leaves"):
        storage.write_text(tmp_path / "a" / ".." / ".." / "b" / "c", "", below=tmp_path)


def test_writers_exclude_each_other_and_readers_share(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with storage.locked(lock, below=tmp_path, shared=True):
        assert not lock.exists()  # a reader writes nothing
    with storage.locked(lock, below=tmp_path):
        pass
    shared = [storage.locked(lock, below=tmp_path, shared=True) for _ in range(2)]
    with shared[0], shared[1], pytest.raises(BlockingIOError), storage.locked(lock, below=tmp_path):
        pass
    with storage.locked(lock, below=tmp_path):
        for reader in (False, True):
            with pytest.raises(BlockingIOError), storage.locked(lock, below=tmp_path, shared=reader):
                pass


def test_the_lock_of_a_folder_that_is_deleted_meanwhile_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    lock = tmp_path / "run" / ".lock"
    with storage.locked(lock, below=tmp_path):
        (tmp_path / "run").rename(tmp_path / "gone")
        (tmp_path / "run").mkdir()
        with storage.locked(lock, below=tmp_path):  # of the new folder: another file
            pass
