"""Rows of points of a surface, each found in a cache on disk or evaluated by one of the processes of a group.

A file has a line for each point, written at once and never changed:

    first 16 digits of the SHA-256 of the rest · [[coordinates], [numbers]] in JSON, which keeps their bits

A line that is cut short or damaged is passed over, and its point is evaluated anew. Where no more can be
written points are evaluated and not kept.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.errors import UserError
from fedscope.landscape.operators.batch_mean import add_up, share
from fedscope.landscape.surfaces.evaluator import Point, Points, Row
from fedscope.storage import append, read_bytes

_CHECK = 16
_MOST = 1 << 32  # bytes


class PointFile:
    """A file of rows by point; with ``path`` None nothing is kept.

    It must belong to one function of the coordinates alone, that is, be named by what decides its bits.
    """

    def __init__(self, path: Path | None, *, below: Path | None = None) -> None:
        self._path, self._below = path, below

    def read(self) -> dict[Row, Row]:
        try:
            content = read_bytes(self._path, _MOST) if self._path else b""
        except (UserError, OSError):
            return {}
        found: dict[Row, Row] = {}
        for line in content.split(b"\n"):
            if line[:_CHECK] == _digest(line[_CHECK:]):
                point, row = json.loads(line[_CHECK:])
                found[tuple(point)] = tuple(row)
        return found

    def add(self, point: Row, row: Row) -> None:
        if self._path is None:
            return
        body = json.dumps([point, row]).encode()
        try:  # a line of its own, wherever the one before was cut short
            append(self._path, b"\n" + _digest(body) + body + b"\n", below=self._below, sync=False)
        except OSError:
            self._path = None  # the disk is full or read-only: nothing more is kept


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:_CHECK].encode()


_ROUND = 8  # points of each process, between the times that the group puts its rows together


class SharedPoints:
    """Evaluates lists of points, which every process of the group asks for alike; all get the same rows.

    Only the first process reads and writes the file.

    Args:
        group: None is this process alone, which writes each row as it comes.
        again: do not read the file; of two rows of a point it is the later that will be read.
    """

    def __init__(
        self, points: Points, store: PointFile, group: ProcessGroup | None = None, *, again: bool = False
    ) -> None:
        self._points, self._store, self._group = points, store, group
        self._first = group is None or dist.get_rank(group) == 0
        self.numbers = 2 * len(points.names)
        self._rows: dict[Point, Row] = store.read() if self._first and not again else {}
        for point, row in points.seen.items():
            if self._first and point not in self._rows:
                self._keep(point, row)
            self._rows[point] = row

    def __call__(self, wanted: Sequence[Point], report: Callable[[int], None] | None = None) -> list[Row]:
        report = report or (lambda _: None)
        self._tell(wanted)
        missing = [point for point in dict.fromkeys(wanted) if point not in self._rows]
        done = len(wanted) - len(missing)
        if done:
            report(done)
        at_once = 1 if self._group is None else _ROUND * dist.get_world_size(self._group)
        for begin in range(0, len(missing), at_once):
            together = missing[begin : begin + at_once]
            rows = torch.zeros(len(together), self.numbers, dtype=torch.float64)
            for i in share(len(together), self._group):
                rows[i] = torch.tensor(self._points(together[i]), dtype=torch.float64)
            for point, row in zip(together, self._summed(rows).tolist(), strict=True):
                self._keep(point, tuple(row))
                done += 1
                report(done)
        return [self._rows[point] for point in wanted]

    def _keep(self, point: Point, row: Row) -> None:
        self._rows[point] = row
        if self._first:
            self._store.add(point, row)

    def _tell(self, wanted: Sequence[Point]) -> None:
        """Let the other processes know the rows that the first has found."""
        if self._group is None:
            return
        known = torch.zeros(len(wanted), self.numbers + 1, dtype=torch.float64)
        if self._first:
            for i, point in enumerate(wanted):
                if point in self._rows:
                    known[i] = torch.tensor([1.0, *self._rows[point]], dtype=torch.float64)
        for point, (there, *row) in zip(wanted, self._summed(known).tolist(), strict=True):
            if there:
                self._rows[point] = tuple(row)

    def _summed(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the sum over the group: each row is of one process, and zero in the others."""
        there = rows.to(self._points.device)
        add_up(self._group, there)
        return there.cpu()
