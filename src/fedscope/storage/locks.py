"""Locks between processes, on a file of their own; a process that dies releases its locks.

The system's ``flock`` itself: filelock's native locks know no readers that share one, and its lock for
readers and writers is an SQLite database, which a reader would have to be able to write to.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedscope.errors import UserError
from fedscope.storage import door

_LOCKLESS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # a file system has no locks
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def locked(path: Path, *, below: Path | None, shared: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``, which a writer creates and which is deleted only with its folder.

    Readers share the lock and write nothing: without a lock file no writer has been there, and where the
    file system has no locks nobody can write.
    """
    with door.parent_folder(path, below) as folder:
        door.check(path, folder, "file")
        how = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
        try:
            handle = os.open(path.name, how | _OPEN, 0o666, dir_fd=folder)
        except FileNotFoundError:
            handle = None
    if handle is None:
        yield
        return
    try:
        with door.named(path, below):
            _lock(handle, path, shared=shared)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, *, shared: bool) -> None:
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise
        if not shared:
            raise UserError(
                f"{path}: the file system has no locks ({error.strerror}), which keep two processes from one "
                "run; mount it with them (Lustre: -o flock, NFS: lockd), or name a registry elsewhere"
            ) from error
    if not _still(handle, path):
        raise BlockingIOError(errno.EWOULDBLOCK, "is being deleted", str(path))


def _still(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
