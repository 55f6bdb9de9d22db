"""Files and folders that appear whole or not at all: a power cut leaves the old content or the new.

``below`` is explained in :mod:`fedscope.storage`. Every function raises ``UserError`` where a link is in the
way, or anything but a regular file, and ``OSError`` where the disk is full or access is denied.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom, BufferedWriter
from pathlib import Path
from secrets import token_hex

from fedscope.storage import door

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LONG = 240  # bytes of a name; file systems take 255
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


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


@contextmanager
def appended(path: Path, *, below: Path | None) -> Iterator[BufferedWriter]:
    path = door.target(path, below)
    with door.parent_folder(path, below, make=True) as folder:
        handle = os.fdopen(_opened(path, folder, _APPEND), "wb")
    with handle:
        yield handle


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
