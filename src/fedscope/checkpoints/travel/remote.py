"""A place that runs are pushed to and pulled from: a folder here, or a store elsewhere.

    URL/runs/RUN.json        the sealed list of a run's files, written last: a run without a list is not there
    URL/objects/ab/cdef…     a file under the SHA-256 of its bytes; an empty file has none

A registry that is pushed to its own folder gets the lists alone; the files stay in ``URL/RUN/``.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.request import url2pathname

from fedscope.checkpoints.file.schema import NAME
from fedscope.errors import UserError
from fedscope.storage import atomic_file, open_regular

CHUNK = 1 << 20
Tick = Callable[[], None]  # called between the parts of a long transfer; an exception ends the transfer
STORES = ("s3", "gs", "hf", "https", "http")


class Absent(UserError):
    """There is no such file at the remote."""


class Remote(ABC):
    """Files below one URL."""

    def __init__(self, url: str):
        self.url = url

    @property
    def workers(self) -> int:
        """How many files may be on the way at once."""
        return 4

    @abstractmethod
    def size(self, place: str) -> int | None:
        """Return the size of the file at ``place`` in bytes; None if there is none."""

    @abstractmethod
    def read(self, place: str) -> Generator[bytes, None, None]:
        """Yield the content of the file at ``place`` in parts.

        Raises:
            Absent: there is none.
            UserError: it cannot be read.
        """

    @abstractmethod
    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        """Write a file, which is there as a whole or not at all.

        Raises:
            UserError: it cannot be written.
        """

    @abstractmethod
    def entries(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder.

        Raises:
            UserError: they cannot be listed.
        """

    def runs(self) -> list[str]:
        """Return the names of the runs that were pushed.

        Raises:
            UserError: they cannot be listed.
        """
        names = (name.removesuffix(".json") for name in self.entries("runs") if name.endswith(".json"))
        return sorted(name for name in names if NAME.fullmatch(name))


class Folder(Remote):
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, url: str, root: Path):
        super().__init__(url)
        self.root = root

    def size(self, place: str) -> int | None:
        """Return the size of the regular file at ``place``."""
        path = self.root / place
        return path.stat().st_size if path.is_file() else None

    def read(self, place: str) -> Generator[bytes, None, None]:
        """Yield the content of a regular file."""
        try:
            with open_regular(self.root / place) as source:
                while chunk := source.read(CHUNK):
                    yield chunk
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Absent(f"there is no file {self.root / place}") from error

    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        """Write a file beside its place, and rename it; through links in the folder nothing is written."""
        with atomic_file(self.root / place, below=self.root) as target:
            if isinstance(content, bytes):
                target.write(content)
                return
            with open_regular(content) as source:
                while chunk := source.read(CHUNK):
                    tick()
                    target.write(chunk)

    def entries(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        path = self.root / folder
        return [entry.name for entry in path.iterdir()] if path.is_dir() else []


def remote(url: str) -> Remote:
    """Return the place that ``url`` names: a path, ``file:``, or a scheme of :data:`STORES`.

    Raises:
        UserError: another scheme, a URL that holds a password or may hold a key, or a backend that is not
            installed.
    """
    scheme, rest = _split(url)
    if scheme in (None, "file"):
        path = url2pathname("/" + rest.lstrip("/") if rest.startswith("/") else rest) if scheme else url
        if Path(path).exists() and not Path(path).is_dir():
            raise UserError(f"{url} is no folder; name one that runs were, or are to be, pushed to")
        return Folder(url, Path(path))
    if scheme not in STORES:
        raise UserError(f"runs cannot travel by {scheme}:; use a folder, s3:, gs:, hf: or https:")
    if "@" in rest.lstrip("/").partition("/")[0] or "?" in rest or "#" in rest:
        raise UserError(
            "the URL holds a user, password, key or question mark, which would end in logs; leave them out, "
            f"and give the credentials where {scheme}: programs look for them (docs/registry.md)"
        )
    from fedscope.checkpoints.travel.store import Store  # fsspec's backends: not for a folder

    return Store(scheme, url.rstrip("/"))


def _split(url: str) -> tuple[str | None, str]:
    """Return scheme and rest; a scheme of one letter is a drive."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)
    return (found[1].lower(), url[found.end() :]) if found else (None, url)
