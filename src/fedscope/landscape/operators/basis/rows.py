"""Orthonormal rows Q (m, n) that grow one by one, wherever and however their numbers are kept.

An algorithm appends a vector, takes what the rows have of another out of it, and combines them. All of that
runs piece by piece over the coordinates: so one code serves rows in memory, in a file and in 16 bits
(:mod:`fedscope.landscape.operators.basis.storage`).

In half precision the rows that are kept, Q̃, are Q rounded, neither of unit length nor orthogonal. Their Gram
matrix Q̃Q̃ᵀ = L Lᵀ is measured in float64 as they come, and Q = L⁻¹Q̃ takes their place everywhere: these
rows are orthonormal to the operator's own rounding, and products are taken with them. So nothing downstream
knows of it. What was appended is another vector than what took its place; ``append`` returns a bound on the
difference, which a certificate has to include.

Symbols: m rows, n coordinates, s fixed rows before them, M = L⁻¹.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.kept import PIECE, WHOLE, Pieces, StoredRows, total
from fedscope.landscape.operators.basis.storage import BasisStorage, RowSpace

_LITTLE = 2.0**-16  # of a vector: a sixteenth of the rounding of its numbers in half precision


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
        self._mix: Tensor | None = None  # M, where it is not 1
        if self.storage.half:
            self._mix = torch.zeros(0, 0, dtype=torch.float64, device=device)
        for row, vector in enumerate(before):
            self._kept.write(row, vector)

    @classmethod
    def of(cls, rows: Tensor) -> "BasisRows":
        """Return a copy of orthonormal rows (m, n), in memory and in full precision."""
        own = cls(rows.shape[1], rows.dtype, rows.device, BasisStorage(capacity=max(1, len(rows))))
        for row, vector in enumerate(rows):
            own._kept.write(row, vector)
        own._filled = len(rows)
        return own

    def copied(self, count: int, last: Tensor | None) -> "BasisRows":
        """Return a copy of the first rows without the fixed ones, followed by the row ``last`` (n,)."""
        own = BasisRows(self.n, self.dtype, self.device, self.storage)
        own._kept = self._kept.copied(slice(self.fixed, self.fixed + count), more=1)
        own._mix = None if self._mix is None else self._mix[:count, :count]
        own._filled = count
        if last is not None and self._mix is not None:
            own.append(last.double())
        elif last is not None:
            own._kept.write(count, last)
            own._filled += 1
        return own

    def __len__(self) -> int:
        return self._filled - self.fixed

    @property
    def plain(self) -> bool:
        """Whether the rows are used as one tensor: in the operator's dtype, and not too long."""
        return self._mix is None and self.n <= WHOLE

    def tensor(self, count: int, *, fixed: bool = False) -> Tensor:
        """Return the first rows (count, n); of plain rows a view, or with the fixed ones."""
        if self.plain:
            return self._kept[slice(0 if fixed else self.fixed, self.fixed + count)]
        return self.combined(torch.eye(count, dtype=torch.float64))

    def row(self, row: int) -> Tensor:
        """Return a row in the operator's dtype."""
        if self.plain:
            return self.tensor(row + 1)[row]
        if self._mix is None:
            return self._kept.row(self.fixed + row)
        chosen = torch.zeros(row + 1, 1, dtype=torch.float64)
        chosen[row] = 1
        return self.combined(chosen)[0]

    def append(self, vector: Tensor) -> float:
        """Append the direction of a float64 vector that is orthogonal to the rows.

        Returns:
            A bound on ‖q − v‖ of the row q that took the place of the unit vector v, beyond the rounding of
            the operator's dtype: 0 in full precision.
        """
        row, m = self._filled, len(self)
        self._kept.release()  # what a product with the whole basis has read
        self._kept.grow(row, self.fixed + min(2 * m, self.n))
        norm = float(vector.norm())
        self._kept.write(row, vector, norm)
        self._filled += 1
        if self._mix is None:
            return 0.0

        def squares() -> Iterator[Tensor]:
            for columns, (piece,) in self._kept.pieces(row, row + 1):
                wide = piece.double()
                yield torch.stack([(wide - vector[columns] / norm).square().sum(), wide.square().sum()])

        lost, square = total(squares()).tolist()
        changed = math.sqrt(lost)
        inner = self._mixed(self._inner(m, self._kept.row(row))) if m else self._mix.new_zeros(0)
        length = math.sqrt(square - float(inner @ inner))
        mix = torch.zeros(m + 1, m + 1, dtype=torch.float64, device=self.device)
        mix[:m, :m], mix[m, :m], mix[m, m] = self._mix, -(inner @ self._mix) / length, 1 / length
        self._mix = mix
        return (changed + float(inner.norm()) + abs(1 - length)) / length

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
        In half precision it is left as it is where that is little: ``append`` measures the row that is kept.
        """
        dtype, vector = self.dtype, vector.to(torch.float64, copy=True)
        first = (self._mixed(self._inner(count, vector)) if guess is None else guess).to(dtype)
        kept = self._unmixed(first)

        def left() -> Iterator[Tensor]:
            for columns, piece in self._pieces(count):
                vector[columns] -= piece.T @ kept
                yield piece @ vector[columns].to(dtype)

        again = self._mixed(total(left())).to(dtype)
        if self._mix is not None and float(again.norm()) <= _LITTLE * float(vector.norm()):
            return first.double(), vector
        kept_again = self._unmixed(again)
        for columns, piece in self._pieces(count):
            vector[columns] -= piece.T @ kept_again
        return first.double() + again.double(), vector

    def combined(self, coefficients: Tensor) -> Tensor:
        """Return k combinations (k, n) of the first rows in their dtype, for (count, k) float64."""
        wide = self._unmixed(coefficients.to(self.device)).T
        found = torch.empty(len(wide), self.n, dtype=self.dtype, device=self.device)
        for columns, piece in self._pieces(wide.shape[1]):
            found[:, columns] = (wide @ piece.double()).to(self.dtype)
        return found

    def seen(self, count: int, vectors: "Tensor | Waiting") -> Tensor:
        """Return the inner products (s + count, k) of the fixed and the first rows with k vectors, float64.

        Products are in the rows' dtype, that of the vectors (k, n), and the same however many come together.
        """
        pieces = self._kept.pieces(0, self.fixed + count)
        found = total(
            torch.stack([piece @ vector for vector in vectors[:, columns]], 1) for columns, piece in pieces
        )
        return torch.cat([found[: self.fixed], self._mixed(found[self.fixed :])])

    def waiting(self, count: int) -> "Waiting":
        """Return room for so many vectors, kept where the rows are, in their dtype."""
        if self._waiting is None or len(self._waiting) != count:
            self._waiting = Waiting(count, self)
        return self._waiting

    def take_out(self, count: int, vectors: Tensor) -> None:
        """Subtract from k vectors (k, n), in place, what the first rows have of them."""
        kept = self._unmixed(self.seen(count, vectors)[self.fixed :].to(self.dtype))
        for columns, piece in self._pieces(count):
            vectors[:, columns] -= kept.T @ piece

    def fixed_inner(self, count: int) -> Tensor:
        """Return the inner products (s, count) of the fixed rows with the first rows, in float64."""
        pieces = self._kept.pieces(0, self.fixed + count, max(1, PIECE // count))
        found = total(piece[: self.fixed] @ piece[self.fixed :].T for _, piece in pieces)
        return self._mixed(found.T).T

    def rotate(self, keep: Tensor) -> Tensor:
        """Replace the first m rows by the p combinations ``keep`` (m, p) of them; row m becomes row p.

        Returns:
            (p + 1,) float64 bounds on how far each row is from what it should be, as those of ``append``.
        """
        (m, p), wide = keep.shape, self._unmixed(keep.to(self.device)).T
        new, last = slice(self.fixed, self.fixed + p), self.fixed + m

        def changes() -> Iterator[Tensor]:
            for columns, piece in self._pieces(m):
                turned = wide @ piece.double()
                yield (self._kept.set(new, columns, turned).double() - turned).square().sum(1)

        changed = total(changes()).sqrt().cpu()
        for columns, piece in self._kept.pieces(last, last + 1):
            self._kept.set(slice(new.stop, new.stop + 1), columns, piece)
        self._filled = new.stop + 1
        lost = torch.zeros(p + 1, dtype=torch.float64)
        if self._mix is not None:
            lost[:p] = changed
            lost += self._measured_mix(p + 1)
        return lost

    def wide(self, begin: int, end: int, width: int) -> Pieces:
        """Yield some of the rows in float64, a stretch of about ``width`` columns at a time."""
        first, mix = begin if self._mix is None else 0, self._mix
        for columns, piece in self._kept.pieces(self.fixed + first, self.fixed + end, width):
            yield columns, piece.double() if mix is None else mix[begin:end, :end] @ piece.double()

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
        """Return the inner products (count,) of what is kept of the rows with a vector, float64."""
        return total(piece @ vector[columns].to(self.dtype) for columns, piece in self._pieces(count))

    def _mixed(self, inner: Tensor) -> Tensor:
        """Return M c: inner products with the rows, from those with what is kept."""
        return inner if self._mix is None else self._mix[: len(inner), : len(inner)] @ inner

    def _unmixed(self, coefficients: Tensor) -> Tensor:
        """Return Mᵀ c: coefficients of what is kept, from those of the rows; in the same dtype."""
        if self._mix is None:
            return coefficients
        count = len(coefficients)
        return (self._mix[:count, :count].T @ coefficients.double()).to(coefficients.dtype)

    def _measured_mix(self, count: int) -> Tensor:
        """Measure M anew; return how far it takes the first rows from what is kept, (count,)."""
        gram = total(piece.double() @ piece.double().T for _, piece in self._pieces(count))
        eye = torch.eye(count, dtype=torch.float64, device=self.device)
        self._mix = torch.linalg.solve_triangular(torch.linalg.cholesky(gram), eye, upper=False)
        change = self._mix - eye
        return (change @ gram * change).sum(1).clamp(min=0).sqrt().cpu()


class Waiting:
    """Vectors (k, n) in the storage of rows that wait to be seen together, so that these are read once."""

    def __init__(self, count: int, rows: BasisRows) -> None:
        self._count = count
        self._room = RowSpace(count, rows.n, replace(rows.storage, half=False), rows.dtype, rows.device)

    def __len__(self) -> int:
        return self._count

    def set(self, first: int, vectors: Tensor) -> None:
        """Set some of the vectors, (m, n)."""
        self._room.write(slice(first, first + len(vectors)), slice(None), vectors)

    def __getitem__(self, part: tuple[slice, slice]) -> Tensor:
        """Return the numbers of some vectors in some columns."""
        return self._room.read(*part)
