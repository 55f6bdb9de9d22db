"""Files and folders that appear, move and go: whole or not at all, and never through a link.

A power cut leaves the old content or the new. ``below`` is explained in :mod:`fedscope.storage`. Every
function raises ``UserError`` where a link is in the way, or anything but a regular file, and ``OSError``
where the disk is full or access is denied.
"""

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedRandom
from pathlib import Path
from secrets import token_hex

from fedscope.errors import UserError
from fedscope.storage import door

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONG = 240  # bytes of a name; file systems take 255
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def cache_dir() -> Path:
    if os.environ.get("FEDSCOPE_CACHE"):
        return Path(os.environ["FEDSCOPE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedscope"


def check_target(path: Path) -> None:
    if not is_writable(path, below=None):
        raise UserError(f"cannot write {path}; name a file in a folder that you may write to")


def is_writable(path: Path, *, below: Path | None) -> bool:
    """Say whether permissions allow a file at ``path``; folders on the way are made when it is written."""
    folder = door.target(path, below).parent
    if below is not None:
        _check_way(path, below)
    while not os.path.lexists(folder):
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@contextmanager
def atomic_file(path: Path, *, below: Path | None, durable: bool = True) -> Iterator[BufferedRandom]:
    """Yield a new file beside ``path``, open for writing; on success it is synced and renamed over ``path``.

    If the block raises (disk full, interrupt), ``path`` keeps its old content and the new file is removed.
    What is not ``durable`` is not synced: whole after ``kill -9``, perhaps torn after a power cut.
    """
    path = door.target(path, below)
    temporary = _temporary(path, ".tmp")
    with door.parent_folder(path, below, make=True) as folder:
        door.check(path, folder, "file")
        try:
            with _created(path.with_name(temporary), folder) as handle:
                yield handle
                handle.flush()
                if durable:
                    os.fsync(handle.fileno())
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            if durable:
                os.fsync(folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)


def _temporary(path: Path, end: str = "") -> str:
    """Return a name beside ``path`` that no file has, and that is not too long where its own is not."""
    name = path.name if len(os.fsencode(path.name)) <= _LONG else path.name[: _LONG // 4]
    return f".{name}.{token_hex(4)}{end}"


def write_text(path: Path, text: str, *, below: Path | None) -> None:
    write_bytes(path, text.encode("utf-8"), below=below)


def write_bytes(path: Path, content: bytes, *, below: Path | None) -> None:
    with atomic_file(path, below=below) as handle:
        handle.write(content)


@contextmanager
def atomic_folder(path: Path, *, below: Path | None, exclusive: bool = False) -> Iterator[Path]:
    """Yield a temporary folder; on success it becomes ``path``, unless another process made that first.

    Files are written into it with ``below`` the temporary folder. ``exclusive``: raise ``FileExistsError`` if
    another process was first, rather than keep what it made.
    """
    temporary = path.with_name(_temporary(path))
    with door.parent_folder(path, below, make=True) as folder:
        os.mkdir(temporary.name, dir_fd=folder)
        try:
            yield temporary
            _sync_tree(temporary.name, folder)
            try:
                os.rename(temporary.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                    raise
                door.check(path, folder, "folder", *(["file", "link"] if exclusive else []))
                if exclusive:
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            os.fsync(folder)
        finally:
            shutil.rmtree(temporary.name, ignore_errors=True, dir_fd=folder)


def make_folder(path: Path, *, below: Path | None) -> None:
    with door.entered(path, below, make=True):
        pass


def new_file(path: Path, *, below: Path | None) -> BufferedRandom:
    """Create a file that is not there yet, in a folder that is synced as a whole later; return it open."""
    with door.parent_folder(path, below, make=True) as folder:
        return _created(path, folder)


def append(path: Path, content: bytes, *, below: Path | None, sync: bool = True) -> None:
    """Append ``content`` to a file in one write, so that records of two processes do not mix."""
    path = door.target(path, below)
    with door.parent_folder(path, below, make=True) as folder:
        handle = _opened(path, folder, _APPEND)
        try:
            while content:  # one write, except on a disk that is nearly full
                content = content[os.write(handle, content) :]
            if sync:
                os.fsync(handle)
        finally:
            os.close(handle)


def touch(path: Path, *, below: Path | None) -> None:
    append(path, b"", below=below, sync=False)
    with door.parent_folder(path, below) as folder:
        os.fsync(folder)


def remove(path: Path, *, below: Path | None, missing_ok: bool = False) -> None:
    absent = suppress(FileNotFoundError) if missing_ok else nullcontext()
    with absent, door.parent_folder(path, below) as folder:
        door.check(path, folder, "file")
        os.unlink(path.name, dir_fd=folder)
        os.fsync(folder)


def remove_tree(path: Path, *, below: Path | None) -> None:
    """Delete a folder with all that is below it; of a link below it the link alone goes."""
    with door.parent_folder(path, below) as folder:
        door.check(path, folder, "folder")
        shutil.rmtree(path.name, dir_fd=folder)
        os.fsync(folder)


def remove_empty(path: Path, *, below: Path | None) -> bool:
    with door.parent_folder(path, below) as folder:
        door.check(path, folder, "folder")
        try:
            os.rmdir(path.name, dir_fd=folder)
        except OSError:
            return False
    return True


def move(source: Path, target: Path, *, below: Path | None) -> None:
    """Rename a file over another, or a folder to a name that is free."""
    with door.parent_folder(source, below) as here, door.parent_folder(target, below) as there:
        door.check(source, here, "file", "folder")
        door.check(target, there, "file")
        os.rename(source.name, target.name, src_dir_fd=here, dst_dir_fd=there)
        os.fsync(there)
        os.fsync(here)


def expire(folder: Path, days: float, *, below: Path | None) -> None:
    """Delete the folders in ``folder`` that were not written to for ``days``, as far as that can be done."""
    oldest = time.time() - days * 86_400
    with suppress(FileNotFoundError), door.entered(folder, below) as handle:
        for name in os.listdir(handle):  # noqa: PTH208 (of a descriptor)
            with suppress(OSError):
                about = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode) and about.st_mtime < oldest:
                    shutil.rmtree(name, dir_fd=handle)


def _check_way(path: Path, below: Path) -> None:
    try:
        with door.entered(path.parent, below) as folder:
            found = door.kind(path.name, folder)
    except OSError:  # not there yet, or not to be entered: permissions say
        return
    if found not in (None, "file"):
        raise door.refusal(path, found)


def _created(path: Path, folder: int) -> BufferedRandom:
    return os.fdopen(_opened(path, folder, _NEW), "w+b")


def _opened(path: Path, folder: int, flags: int) -> int:
    door.check(path, folder, "file")
    with door.creating(path):
        return os.open(path.name, flags, 0o666, dir_fd=folder)


def _sync_tree(name: str, folder: int) -> None:
    for _, _, files, handle in os.fwalk(name, dir_fd=folder):
        for file in files:
            opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
        os.fsync(handle)
