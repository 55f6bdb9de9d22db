"""The numbers of rows as they are kept.

Symbols: s fixed rows come before the others; all are counted together here.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.storage import BasisStorage, RowSpace

PIECE = 1 << 18  # numbers read at a time on a CPU: they stay in a core's cache
WHOLE = 1 << 22  # coordinates of vectors that are multiplied at once; longer ones piece by piece
_ON_DEVICE = 1 << 24  # numbers read at a time on an accelerator: less would not pay for the calls

Pieces = Iterator[tuple[slice, Tensor]]
"""(columns; the rows' numbers there)."""


class StoredRows:
    """Rows that can be read and written a stretch of columns at a time; more room is made where needed."""

    def __init__(
        self, n: int, dtype: torch.dtype, device: torch.device, storage: BasisStorage, rows: int
    ) -> None:
        self.n, self.dtype, self.device, self.storage = n, dtype, device, storage
        self._room = RowSpace(rows, n, storage, dtype, device)

    def __getitem__(self, rows: slice) -> Tensor:
        return self._room.numbers[rows]

    def grow(self, filled: int, rows: int) -> None:
        """Make room for ``rows``, if there is none for more than the ``filled`` first ones."""
        if filled == len(self._room.numbers):
            room = RowSpace(rows, self.n, self.storage, self.dtype, self.device)
            room.take(self._room, slice(0, filled))
            self._room = room

    def release(self) -> None:
        self._room.release()

    def copied(self, rows: slice, more: int) -> "StoredRows":
        count = rows.stop - rows.start
        own = StoredRows(self.n, self.dtype, self.device, replace(self.storage, capacity=None), count + more)
        own._room.take(self._room, rows)
        return own

    def write(self, row: int, vector: Tensor, norm: float = 1.0) -> None:
        for first in range(0, self.n, WHOLE):
            piece = vector[first : first + WHOLE]
            self._room.write(slice(row, row + 1), slice(first, first + len(piece)), piece / norm)

    def row(self, row: int) -> Tensor:
        return torch.cat([piece[0] for _, piece in self.pieces(row, row + 1)])

    def pieces(self, begin: int, end: int, width: int | None = None) -> Pieces:
        most = PIECE if self.device.type == "cpu" else _ON_DEVICE
        step = width or max(1, most // max(1, end - begin))
        for first in range(0, self.n, step):
            columns = slice(first, min(first + step, self.n))
            yield columns, self._room.read(slice(begin, end), columns)

    def set(self, rows: slice, columns: slice, numbers: Tensor) -> Tensor:
        self._room.write(rows, columns, numbers)
        return self._room.read(rows, columns)


def total(terms: Iterator[Tensor]) -> Tensor:
    """Return the float64 sum of one term for each piece, in order."""
    first = next(terms)
    sums = torch.zeros_like(first, dtype=torch.float64)
    sums += first
    for term in terms:
        sums += term
    return sums
