"""The walk from a root to a folder by directory descriptors, and what an entry of a folder is.

A path is looked up anew at every call of the system, and between two calls a folder of it may have become
a link to elsewhere. A descriptor stays with its folder: what is done relative to it happens there, or not.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedscope.errors import UserError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_FOLDER = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)  # what O_NOFOLLOW says of a link, by system
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def kind(name: str | Path, folder: int | None = None, *, follow: bool = False) -> str | None:
    """Return what an entry of an open folder is: file, folder, link, pipe, socket, device, or None."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "device")


def refusal(path: Path, found: str, wanted: str = "file") -> UserError:
    if found == "link":
        return UserError(
            f"{path} is a link, and through links nothing is written, renamed or deleted here; replace it by "
            "what it leads to"
        )
    return UserError(f"{path} is a {found}, no {wanted}; name another, or remove it")


def check(path: Path, folder: int, *wanted: str) -> None:
    """Check that the entry at ``path``, in an open folder, is of a wanted kind, or that there is none."""
    found = kind(path.name, folder)
    if found is not None and found not in wanted:
        raise refusal(path, found, wanted[0])


def nothing_behind(path: Path) -> UserError:
    return UserError(
        f"{path} is a link that leads to nothing ({path.readlink()}); mount or make what it leads to, or "
        "name another place"
    )


def is_folder(path: Path) -> bool:
    """Say whether a folder is there, be it behind a link."""
    if path.is_dir():
        return True
    if path.is_symlink() and not path.exists():
        raise nothing_behind(path)
    return False


def target(path: Path, below: Path | None) -> Path:
    """Return the path to write to: where a link leads that the user typed, else the path itself."""
    if below is not None:
        return path
    found = kind(path, follow=True)
    if found not in (None, "file"):
        raise refusal(path, found)
    return Path(os.path.realpath(path))


@contextmanager
def entered(path: Path, below: Path | None, *, make: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder ``path``; ``make``: missing folders are made."""
    place = path if below is None else below
    steps = () if below is None else path.relative_to(below).parts
    if ".." in steps:
        raise ValueError(f"{path} leaves {below}")
    if make:
        _make_root(place)
    handle = os.open(place, _FOLDER)
    try:
        for step in steps:
            place /= step
            above, handle = handle, _stepped(handle, place, make=make)
            os.close(above)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def parent_folder(path: Path, below: Path | None, *, make: bool = False) -> Iterator[int]:
    with named(path, below), entered(path.parent, below, make=make) as folder:
        yield folder


@contextmanager
def named(path: Path, below: Path | None = None) -> Iterator[None]:
    """Let an error of the system name ``path``, where it names nothing or an entry of a folder alone."""
    try:
        yield
    except OSError as error:
        of = None if error.filename is None else str(error.filename)
        if error.errno is not None and (of is None or (os.sep not in of and of != str(below))):
            error.filename, error.filename2 = str(path), None
        raise


def _make_root(place: Path) -> None:
    try:
        with creating(place):
            place.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        there = Path(error.filename)
        raise nothing_behind(there) if there.is_symlink() else refusal(there, "file", "folder") from error


def _stepped(handle: int, place: Path, *, make: bool) -> int:
    with named(place):
        try:
            return os.open(place.name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
        except OSError as error:
            if error.errno in _NO_FOLDER and kind(place.name, handle) == "link":
                raise refusal(place, "link") from error
            if not make or error.errno != errno.ENOENT:
                raise
        with suppress(FileExistsError):  # another process was quicker
            os.mkdir(place.name, dir_fd=handle)
            os.fsync(handle)
    return _stepped(handle, place, make=False)


@contextmanager
def creating(path: Path) -> Iterator[None]:
    """Create what lies in a folder that is there; a file system that takes nothing new calls it missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise PermissionError(errno.EACCES, "nothing can be created there", str(path)) from error
