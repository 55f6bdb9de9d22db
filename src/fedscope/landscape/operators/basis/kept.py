"""The numbers of rows as they are kept: this process' coordinates, in the precision of the storage.

Symbols: s fixed rows come before the others; all are counted together here.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.shards import Shards, Whole
from fedscope.landscape.operators.basis.storage import BasisStorage, Room

PIECE = 1 << 18  # numbers read at a time on a CPU: they stay in a core's cache
WHOLE = 1 << 22  # coordinates of vectors that are multiplied at once; longer ones piece by piece
_ON_DEVICE = 1 << 24  # numbers read at a time on an accelerator: less would not pay for the calls

Pieces = Iterator[tuple[slice, Tensor]]
"""(columns, counted among the coordinates of this process; the rows' numbers there)."""


class Kept:
    """Rows that can be read and written a stretch of columns at a time.

    Args:
        n: coordinates of all processes.
        dtype: that numbers are read in.
        device: where they are.
        storage: how they are kept.
        rows: room for so many at once; more is made when they are written.
    """

    def __init__(
        self, n: int, dtype: torch.dtype, device: torch.device, storage: BasisStorage, rows: int
    ) -> None:
        self.n, self.dtype, self.device, self.storage = n, dtype, device, storage
        self.shards = Shards(n, storage.group) if storage.group else Whole(n)
        self.local = len(self.shards.mine) * self.shards.width  # coordinates of this process
        self._room = self._empty(rows)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return rows of the only part as they are kept: of all coordinates where nothing is shared."""
        return self._room.numbers[0, rows]

    def grow(self, filled: int, rows: int) -> None:
        """Make room for ``rows``, if there is none for more than the ``filled`` first ones."""
        if filled == self._room.capacity:
            room = self._empty(rows)
            room.take(self._room, slice(0, filled))
            self._room = room

    def release(self) -> None:
        """Hand the pages of a file back to the system."""
        self._room.release()

    def copied(self, rows: slice, more: int) -> "Kept":
        """Return a copy of some rows, as the first ones, with room for ``more``."""
        count = rows.stop - rows.start
        own = Kept(self.n, self.dtype, self.device, replace(self.storage, capacity=None), count + more)
        own._room.take(self._room, rows)
        return own

    def write(self, row: int, vector: Tensor, norm: float = 1.0) -> None:
        """Set a row to a vector of local coordinates, divided by ``norm``, piece by piece."""
        for part, numbers in enumerate(vector.split(self.shards.width)):
            for first in range(0, len(numbers), WHOLE):
                piece = numbers[None, first : first + WHOLE]
                within = slice(first, first + piece.shape[1])
                self._room.write(part, slice(row, row + 1), within, piece / norm)

    def row(self, row: int) -> Tensor:
        """Return a row's local coordinates."""
        return torch.cat([piece[0] for _, piece in self.pieces(row, row + 1)])

    def pieces(self, begin: int, end: int, width: int | None = None) -> Pieces:
        """Yield some rows, about ``width`` columns at a time; without coordinates an empty piece."""
        shards = self.shards
        most = PIECE if self.device.type == "cpu" else _ON_DEVICE
        step = shards.width if shards.shared else width or max(1, most // max(1, end - begin))
        for part in range(len(shards.mine)):
            for first in range(0, shards.width, step):
                last, before = min(first + step, shards.width), part * shards.width
                numbers = self._room.read(part, slice(begin, end), slice(first, last))
                yield slice(before + first, before + last), numbers
        if not len(shards.mine):
            yield slice(0, 0), torch.empty(end - begin, 0, dtype=self.dtype, device=self.device)

    def set(self, rows: slice, columns: slice, numbers: Tensor) -> Tensor:
        """Write rows in columns of one piece; return what they are there now."""
        part, first = divmod(columns.start, self.shards.width)
        within = slice(first, first + numbers.shape[1])
        if not numbers.shape[1]:
            return numbers
        self._room.write(part, rows, within, numbers)
        return self._room.read(part, rows, within)

    def _empty(self, rows: int) -> Room:
        shape = len(self.shards.mine), rows, self.shards.width
        return Room(shape, self.storage, self.dtype, self.device)
