"""Reading files that others may have written: regular files only, opened without waiting, of bounded size."""

import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscope.errors import UserError, no_file
from fedscope.storage.door import kind, named

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_BYTES = 1 << 26  # of one JSON file


def open_regular(path: str | Path) -> BufferedReader:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if kind(Path(path), follow=True) == "socket":  # which cannot even be opened
            raise _no_file(path, "socket") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _no_file(path, kind(Path(path), follow=True))
    return BufferedReader(_Named(handle, Path(path)))


class _Named(FileIO):
    """A file whose errors name it: a failing disk tells no more than that it fails."""

    def __init__(self, handle: int, path: Path):
        super().__init__(handle, "rb")
        self._path = path

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with named(self._path):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        with named(self._path):
            return super().readall()


def regular(path: Path) -> Path:
    """Return ``path``, to be opened by another library's reader, if it is a regular file."""
    open_regular(path).close()
    return path


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    with open_regular(path) as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > most:
            raise UserError(f"{path} has more than {most >> 20} MiB, the most that is read of such a file")
        return handle.read(size)


def read_end(path: Path, most: int = 1 << 16) -> bytes:
    with open_regular(path) as handle:
        handle.seek(max(0, os.fstat(handle.fileno()).st_size - most))
        return handle.read(most)


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    return read_bytes(path, most).decode("utf-8")


def read_toml(path: Path) -> dict[str, Any]:
    from tomllib import TOMLDecodeError, loads  # imported only where a command reads one

    try:
        return loads(read_text(path))
    except FileNotFoundError as error:
        raise no_file(path) from error
    except (UnicodeDecodeError, TOMLDecodeError) as error:
        raise UserError(f"{path} is no TOML: {error}; name a .toml file, or mend it there") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def _no_file(path: str | Path, found: str | None) -> UserError:
    return UserError(f"{path} is no regular file{f' but a {found}' if found else ''}; name another")
