"""Rows of numbers on disk, one per point, from which an interrupted surface is continued.

A file is a sequence of records, each written at once and never changed:

    "fpt1" · coordinates · numbers · first 8 bytes of the SHA-256 of these      (float64, little-endian)

A record that is cut short or damaged is passed over, and its point is evaluated anew; the reader finds the
next one by its first letters. Where no more can be written points are evaluated and not kept.
"""

import hashlib
import struct
from pathlib import Path

from fedscope.errors import UserError
from fedscope.storage import append, read_bytes

_MARK = b"fpt1"
_CHECK = 8
_MOST = 1 << 32  # bytes
Row = tuple[float, ...]


class PointFile:
    """A file of rows by point; with ``path`` None nothing is kept.

    It must belong to one function of the coordinates alone, that is, be named by what decides its bits.
    """

    def __init__(self, path: Path | None, *, axes: int, numbers: int, below: Path | None = None) -> None:
        self._path, self._below = path, below
        self._layout = struct.Struct(f"<{axes + numbers}d")
        self._axes = axes

    def read(self) -> dict[Row, Row]:
        try:
            content = read_bytes(self._path, _MOST) if self._path else b""
        except (UserError, OSError):
            return {}
        found: dict[Row, Row] = {}
        at, length = content.find(_MARK), len(_MARK) + self._layout.size + _CHECK
        while at >= 0:
            record = content[at : at + length]
            body = record[len(_MARK) : -_CHECK]
            whole = len(record) == length and record[-_CHECK:] == _digest(body)
            if whole:
                numbers = self._layout.unpack(body)
                found[numbers[: self._axes]] = numbers[self._axes :]
            at = content.find(_MARK, at + (length if whole else 1))
        return found

    def add(self, point: Row, row: Row) -> None:
        if self._path is None:
            return
        body = self._layout.pack(*point, *row)
        try:
            append(self._path, _MARK + body + _digest(body), below=self._below, sync=False)
        except OSError:
            self._path = None  # the disk is full or read-only: nothing more is kept


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_CHECK]
