"""Orthonormal rows Q (m, n) that grow one by one, wherever their numbers are kept.

An algorithm appends a vector, takes what the rows have of another out of it, and combines them. All of that
runs piece by piece over the coordinates: so one code serves rows in memory and in a file
(:mod:`fedscope.landscape.operators.basis.storage`).

Symbols: m rows, n coordinates, s fixed rows before them.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.kept import PIECE, WHOLE, Pieces, StoredRows, total
from fedscope.landscape.operators.basis.storage import BasisStorage, RowSpace


class BasisRows:
    """Room for rows, and the rows so far.

    Args:
        n: coordinates.
        dtype: of the operator.
        device: where the rows are.
        storage: how they are kept.
        fixed: vectors (n,) that are kept before the rows and are no part of the basis.
    """

    def __init__(
        self,
        n: int,
        dtype: torch.dtype,
        device: torch.device,
        storage: BasisStorage | None = None,
        fixed: Iterable[Tensor] = (),
    ) -> None:
        self.n, self.dtype, self.device, self.storage = n, dtype, device, storage or BasisStorage()
        before = list(fixed)
        self.fixed = self._filled = len(before)
        self._kept = StoredRows(n, dtype, device, self.storage, self.fixed + (self.storage.capacity or 1))
        self._waiting: Waiting | None = None
        for row, vector in enumerate(before):
            self._kept.write(row, vector)

    @classmethod
    def of(cls, rows: Tensor) -> "BasisRows":
        own = cls(rows.shape[1], rows.dtype, rows.device, BasisStorage(capacity=max(1, len(rows))))
        for row, vector in enumerate(rows):
            own._kept.write(row, vector)
        own._filled = len(rows)
        return own

    def copied(self, count: int, last: Tensor | None) -> "BasisRows":
        """Return a copy of the first rows without the fixed ones, followed by the row ``last`` (n,)."""
        own = BasisRows(self.n, self.dtype, self.device, self.storage)
        own._kept = self._kept.copied(slice(self.fixed, self.fixed + count), more=1)
        own._filled = count
        if last is not None:
            own._kept.write(count, last)
            own._filled += 1
        return own

    def __len__(self) -> int:
        return self._filled - self.fixed

    @property
    def plain(self) -> bool:
        """Whether the rows are short enough to be used as one tensor."""
        return self.n <= WHOLE

    def tensor(self, count: int, *, fixed: bool = False) -> Tensor:
        """Return the first rows (count, n); of plain rows a view, or with the fixed ones."""
        if self.plain:
            return self._kept[slice(0 if fixed else self.fixed, self.fixed + count)]
        return self.combined(torch.eye(count, dtype=torch.float64))

    def row(self, row: int) -> Tensor:
        if self.plain:
            return self.tensor(row + 1)[row]
        return self._kept.row(self.fixed + row)

    def append(self, vector: Tensor) -> None:
        """Append the direction of a float64 vector that is orthogonal to the rows."""
        row, m = self._filled, len(self)
        self._kept.release()  # what a product with the whole basis has read
        self._kept.grow(row, self.fixed + min(2 * m, self.n))
        self._kept.write(row, vector, float(vector.norm()))
        self._filled += 1

    def rounding(self, vector: Tensor) -> float:
        """Return ‖q − v‖ of the first row q and the unit vector v of a float64 vector."""
        norm = float(vector.norm())
        pieces = self._kept.pieces(self.fixed, self.fixed + 1)
        squares = ((row[0].double() - vector[columns] / norm).square().sum() for columns, row in pieces)
        return math.sqrt(float(total(squares)))

    def orthogonalised(
        self, count: int, vector: Tensor, guess: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return what the first rows take of a vector, (count,), and what is left of it, in float64.

        In two rounds; products are in the operator's dtype, a piece at a time, their sums in float64. The
        second round measures what the first left, so that the first one's coefficients need only be a guess.
        """
        dtype, vector = self.dtype, vector.to(torch.float64, copy=True)
        first = (self._inner(count, vector) if guess is None else guess).to(dtype)

        def left() -> Iterator[Tensor]:
            for columns, piece in self._pieces(count):
                vector[columns] -= piece.T @ first
                yield piece @ vector[columns].to(dtype)

        again = total(left()).to(dtype)
        for columns, piece in self._pieces(count):
            vector[columns] -= piece.T @ again
        return first.double() + again.double(), vector

    def combined(self, coefficients: Tensor) -> Tensor:
        """Return k combinations (k, n) of the first rows in their dtype, for (count, k) float64."""
        wide = coefficients.to(self.device).T
        found = torch.empty(len(wide), self.n, dtype=self.dtype, device=self.device)
        for columns, piece in self._pieces(wide.shape[1]):
            found[:, columns] = (wide @ piece.double()).to(self.dtype)
        return found

    def seen(self, count: int, vectors: "Tensor | Waiting") -> Tensor:
        """Return the inner products (s + count, k) of the fixed and the first rows with k vectors, float64.

        Products are in the rows' dtype, that of the vectors (k, n), and the same however many come together.
        """
        pieces = self._kept.pieces(0, self.fixed + count)
        return total(
            torch.stack([piece @ vector for vector in vectors[:, columns]], 1) for columns, piece in pieces
        )

    def waiting(self, count: int) -> "Waiting":
        if self._waiting is None or len(self._waiting) != count:
            self._waiting = Waiting(count, self)
        return self._waiting

    def take_out(self, count: int, vectors: Tensor) -> None:
        """Subtract from k vectors (k, n), in place, what the first rows have of them."""
        kept = self.seen(count, vectors)[self.fixed :].to(self.dtype)
        for columns, piece in self._pieces(count):
            vectors[:, columns] -= kept.T @ piece

    def fixed_inner(self, count: int) -> Tensor:
        """Return the inner products (s, count) of the fixed rows with the first rows, in float64."""
        pieces = self._kept.pieces(0, self.fixed + count, max(1, PIECE // count))
        return total(piece[: self.fixed] @ piece[self.fixed :].T for _, piece in pieces)

    def rotate(self, keep: Tensor) -> None:
        """Replace the first m rows by the p combinations ``keep`` (m, p) of them; row m becomes row p."""
        (m, p), wide = keep.shape, keep.to(self.device).T
        new, last = slice(self.fixed, self.fixed + p), self.fixed + m
        for columns, piece in self._pieces(m):
            self._kept.set(new, columns, wide @ piece.double())
        for columns, piece in self._kept.pieces(last, last + 1):
            self._kept.set(slice(new.stop, new.stop + 1), columns, piece)
        self._filled = new.stop + 1

    def wide(self, begin: int, end: int, width: int) -> Pieces:
        for columns, piece in self._kept.pieces(self.fixed + begin, self.fixed + end, width):
            yield columns, piece.double()

    def sampled(self, count: int, columns: int) -> Tensor:
        """Return about so many columns of the last ``count`` rows as they are kept."""
        kept = self._kept[slice(self._filled - count, self._filled)]
        step = max(1, kept.shape[1] // columns)
        found = kept.new_empty(count, len(range(0, kept.shape[1], step)))
        for own, row in zip(found, kept, strict=True):
            own.copy_(row[::step])
            self._kept.release()  # of a file, each number has brought the pages around it
        return found

    def _pieces(self, count: int) -> Pieces:
        return self._kept.pieces(self.fixed, self.fixed + count)

    def _inner(self, count: int, vector: Tensor) -> Tensor:
        return total(piece @ vector[columns].to(self.dtype) for columns, piece in self._pieces(count))


class Waiting:
    """Vectors (k, n) in the storage of rows that wait to be seen together, so that these are read once."""

    def __init__(self, count: int, rows: BasisRows) -> None:
        self._count = count
        self._room = RowSpace(count, rows.n, rows.storage, rows.dtype, rows.device)

    def __len__(self) -> int:
        return self._count

    def set(self, first: int, vectors: Tensor) -> None:
        self._room.write(slice(first, first + len(vectors)), slice(None), vectors)

    def __getitem__(self, part: tuple[slice, slice]) -> Tensor:
        return self._room.read(*part)
