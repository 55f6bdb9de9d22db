"""Orthonormal rows Q (m, n) of a basis, which grows one by one.

An algorithm appends a vector, takes what the rows have of another out of it, and combines them. All of that
runs piece by piece over the coordinates, so that one code serves rows in memory and in a file.

Symbols: m rows, n coordinates, s fixed rows before them.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.row_space import PIECE, WHOLE, Pieces, RowSpace

_WIDTH = 1 << 16  # columns converted to float64 at a time


class BasisRows:
    """The rows so far of a basis that grows, or the first of them, in the operator's dtype.

    Args:
        n: coordinates.
        dtype: of the operator.
        device: where the rows are.
        folder: of a file for the rows (on a CPU only); None: they are in memory.
        capacity: rows that room is made for at once; None: more whenever there is none left.
        fixed: vectors (n,) that are kept before the rows and are no part of the basis.
    """

    def __init__(
        self,
        n: int,
        dtype: torch.dtype,
        device: torch.device,
        *,
        folder: Path | None = None,
        capacity: int | None = None,
        fixed: Iterable[Tensor] = (),
    ) -> None:
        self.n, self.dtype, self.device = n, dtype, device
        before = list(fixed)
        self.fixed = self._begin = self._end = len(before)
        try:
            self._space = RowSpace(self.fixed + (capacity or 1), n, dtype, device, folder)
        except OSError:  # a limit of the process, or a system that reserves nothing beyond its memory
            self._space = RowSpace(self.fixed + 1, n, dtype, device, folder)
        for vector in before:
            self._space.append(vector)

    @classmethod
    def of(cls, rows: Tensor) -> "BasisRows":
        """Return a copy of orthonormal rows (m, n)."""
        own = cls(rows.shape[1], rows.dtype, rows.device, capacity=max(1, len(rows)))
        for vector in rows:
            own._put(vector)
        return own

    def first(self, count: int) -> "BasisRows":
        """Return the first rows, which stay while these grow."""
        found = copy.copy(self)
        found._end = self._begin + count
        return found

    def with_fixed(self) -> "BasisRows":
        found = copy.copy(self)
        found._begin = 0
        return found

    def continued(self, outside: Tensor) -> "BasisRows":
        """Return rows that begin with these and ``outside`` (n,), and may grow while these stay.

        Plain rows are copied. Others are not, as long as nothing but ``outside`` has been appended to them.
        """
        more = len(self) < self.n
        if not self.plain and self._space.filled == self._end + more:
            return self.first(len(self) + more)
        own = copy.copy(self)
        own._space = self._space.like(len(self) + 1)
        own._space.take(self._space, slice(self._begin, self._end))
        own.fixed, own._begin, own._end = 0, 0, len(self)
        if more:
            own._put(outside)
        return own

    def kept(self, device: torch.device | str) -> "BasisRows":
        return BasisRows.of(self.tensor.to(device))

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def nbytes(self) -> int:
        return len(self) * self.n * self.dtype.itemsize

    @property
    def plain(self) -> bool:
        """Whether the rows are short enough to be used as one tensor."""
        return self.n <= WHOLE

    @property
    def tensor(self) -> Tensor:
        """The rows (m, n); a copy unless they are plain."""
        if self.plain:
            return self._space.numbers[self._begin : self._end]
        return self.combined(torch.eye(len(self), dtype=torch.float64))

    def row(self, row: int) -> Tensor:
        at = self._begin + row
        if self.plain:
            return self._space.numbers[at]
        return torch.cat([piece[0] for _, piece in self._space.pieces(slice(at, at + 1))])

    def append(self, vector: Tensor) -> None:
        """Append the direction of a float64 vector that is orthogonal to the rows."""
        self._space.release()  # what a product with the whole basis has read
        self._space.grow(self.fixed + min(2 * len(self), self.n))
        self._put(vector, float(vector.norm()))

    def _put(self, vector: Tensor, norm: float = 1.0) -> None:
        self._space.append(vector, norm)
        self._end += 1

    def rounding(self, vector: Tensor) -> float:
        """Return ‖q − v‖ of the first row q and the unit vector v of a float64 vector."""
        norm = float(vector.norm())
        pieces = self.first(1)._pieces()
        squares = ((row[0].double() - vector[columns] / norm).square().sum() for columns, row in pieces)
        return math.sqrt(float(total(squares)))

    def orthogonalised(self, vector: Tensor, guess: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return what the rows take of a vector, (m,), and what is left of it, in float64.

        In two rounds; products are in the operator's dtype, a piece at a time, their sums in float64. The
        second round measures what the first left, so that the first one's coefficients need only be a guess.
        """
        dtype, vector = self.dtype, vector.to(torch.float64, copy=True)
        if guess is None:
            guess = total(piece @ vector[columns].to(dtype) for columns, piece in self._pieces())
        first = guess.to(dtype)

        def left() -> Iterator[Tensor]:
            for columns, piece in self._pieces():
                vector[columns] -= piece.T @ first
                yield piece @ vector[columns].to(dtype)

        again = total(left()).to(dtype)
        for columns, piece in self._pieces():
            vector[columns] -= piece.T @ again
        return first.double() + again.double(), vector

    def combined(self, coefficients: Tensor) -> Tensor:
        """Return k combinations (k, n) of the rows in their dtype, for (m, k) float64."""
        wide = coefficients.to(self.device).T
        found = torch.empty(len(wide), self.n, dtype=self.dtype, device=self.device)
        for columns, piece in self._pieces():
            found[:, columns] = (wide @ piece.double()).to(self.dtype)
        return found

    def seen(self, vectors: Tensor | RowSpace) -> Tensor:
        """Return the inner products (m, k) of the rows with k vectors, float64.

        Products are in the rows' dtype, that of the vectors (k, n), and the same however many come together.
        """
        return total(
            torch.stack([piece @ vector for vector in vectors[:, columns]], 1)
            for columns, piece in self._pieces()
        )

    def waiting(self, count: int) -> RowSpace | None:
        """Return room for so many vectors that wait to be seen, where the rows are read from a file."""
        return None if self._space.folder is None else self._space.beside(count)

    def without(self, v: Tensor) -> Tensor:
        """Return (1 − P) v for (n,) or rows (r, n), in v's dtype."""
        if self.plain:
            return without(self.tensor, v)
        left: Tensor = torch.atleast_2d(v).to(self.dtype, copy=True)
        inside = self.seen(left).to(self.dtype)
        for columns, piece in self._pieces():
            left[:, columns] -= inside.T @ piece
        return left.to(v.dtype).view(v.shape)

    def fixed_inner(self) -> Tensor:
        """Return the inner products (s, m) of the fixed rows with the rows, in float64."""
        pieces = self._space.pieces(slice(0, self._end), max(1, PIECE // len(self)))
        return total(piece[: self.fixed] @ piece[self.fixed :].T for _, piece in pieces)

    def rotate(self, keep: Tensor) -> None:
        """Replace the first m rows by the p combinations ``keep`` (m, p) of them; row m becomes row p."""
        (m, p), wide = keep.shape, keep.to(self.device).T
        end, last = self._begin + p, self._begin + m
        for columns, piece in self.first(m)._pieces():
            self._space[self._begin : end, columns].copy_(wide @ piece.double())
        for columns, piece in self._space.pieces(slice(last, last + 1)):
            self._space[end : end + 1, columns].copy_(piece)
        self._space.filled = self._end = end + 1

    def wide(self, begin: int = 0) -> Pieces:
        """Yield the rows from ``begin`` on in float64, some columns at a time."""
        for columns, piece in self._space.pieces(slice(self._begin + begin, self._end), _WIDTH):
            yield columns, piece.double()

    def sampled(self, columns: int) -> Tensor:
        """Return about so many columns of the rows as they are kept."""
        kept = self._space.numbers[self._begin : self._end]
        step = max(1, self.n // columns)
        found = kept.new_empty(len(self), len(range(0, self.n, step)))
        for own, row in zip(found, kept, strict=True):
            own.copy_(row[::step])
            self._space.release()  # of a file, each number has brought the pages around it
        return found

    def _pieces(self) -> Pieces:
        return self._space.pieces(slice(self._begin, self._end))


def total(terms: Iterator[Tensor]) -> Tensor:
    """Return the float64 sum of one term for each piece, in order."""
    first = next(terms)
    sums = torch.zeros_like(first, dtype=torch.float64)
    sums += first
    for term in terms:
        sums += term
    return sums


def without(basis: Tensor, v: Tensor) -> Tensor:
    """Return (1 − P) v for (n,) or rows (m, n), in v's dtype; P projects on the orthonormal rows (r, n)."""
    return v - (v @ basis.T.to(v.dtype)) @ basis.to(v.dtype)
