"""Writing files so that a reader, or a power cut, sees the old content or the new one; the user's cache."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """Return ``$FEDSCOPE_CACHE``, ``$XDG_CACHE_HOME/fedscope`` or ``~/.cache/fedscope``."""
    if os.environ.get("FEDSCOPE_CACHE"):
        return Path(os.environ["FEDSCOPE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedscope"


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced and renamed over ``path``.

    If the block raises (disk full, interrupt), ``path`` keeps its old content and the temporary file is
    removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        synced(temporary)
        temporary.replace(path)
        synced(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, exclusive: bool = False) -> Iterator[Path]:
    """Yield a temporary folder; on success it becomes ``path``, unless another process made that first.

    Args:
        path: the folder to be.
        exclusive: raise ``FileExistsError`` if another process was first, rather than keep what it made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            synced(file)
        synced(temporary)
        try:
            temporary.rename(path)
        except OSError as error:
            taken = (errno.EEXIST, errno.ENOTEMPTY, *([errno.ENOTDIR] if exclusive else []))
            if error.errno not in taken:
                raise
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        synced(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_writable(path: Path) -> bool:
    """Say whether a file could be made at ``path``, so that a long run does not end in an error."""
    if path.is_dir():
        return False
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, as UTF-8."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def synced(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
