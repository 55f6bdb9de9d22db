"""Rows of numbers on disk, one per point: what an interrupted surface goes on from, and a finished one is.

A file is a sequence of records, each written at once and never changed:

    "fpt1" · coordinates · numbers · first 8 bytes of the SHA-256 of these      (float64, little-endian)

A record that is cut short or damaged is passed over, and its point is evaluated anew; the reader finds the
next one by its first letters. Where no more can be written points are evaluated and not kept.
"""

import hashlib
import os
import struct
from pathlib import Path

_MARK = b"fpt1"
_CHECK = 8
Row = tuple[float, ...]


class PointFile:
    """A file of rows by point.

    Args:
        path: it must belong to one function of the coordinates alone, that is, be named by what decides its
            bits; None keeps nothing.
        axes: coordinates of a point.
        numbers: length of a row.
    """

    def __init__(self, path: Path | None, *, axes: int, numbers: int) -> None:
        self._path = path
        self._layout = struct.Struct(f"<{axes + numbers}d")
        self._axes = axes

    def read(self) -> dict[Row, Row]:
        """Return all rows that can be read, by point."""
        try:
            content = self._path.read_bytes() if self._path else b""
        except OSError:
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
        """Append a row."""
        if self._path is None:
            return
        body = self._layout.pack(*point, *row)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # One write to a file opened for appending: two processes do not write into each other's records.
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, _MARK + body + _digest(body))
            finally:
                os.close(handle)
        except OSError:
            self._path = None  # the disk is full, or not ours to write on: go on without


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:_CHECK]
