"""A place that runs are pushed to and pulled from: a folder here, or a store elsewhere.

    URL/runs/RUN.json        the sealed list of a run's files, written last: a run without a list is not there
    URL/objects/ab/cdef…     a file under the SHA-256 of its bytes; an empty file has none

A registry that is pushed to its own folder gets the lists alone; the files stay in ``URL/RUN/``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from pathlib import Path

from fedscope.checkpoints.file.fields import NAME
from fedscope.errors import UserError

CHUNK = 1 << 20
# called with the bytes of each part of a long transfer; an exception ends the transfer
Tick = Callable[[int], None]


class Absent(UserError):
    """There is no such file at the remote."""


class Remote(ABC):
    """Files below one URL."""

    is_readonly = False  # can only be pulled from

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
        """Yield the content of the file at ``place`` in parts."""

    @abstractmethod
    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        """Write a file, which is there as a whole or not at all."""

    @abstractmethod
    def entries(self, folder: str) -> list[str]:
        """Return the names in a folder; none if there is no such folder."""

    def runs(self) -> list[str]:
        names = (name.removesuffix(".json") for name in self.entries("runs") if name.endswith(".json"))
        return sorted(name for name in names if NAME.fullmatch(name))
