"""The first rows of a growing basis, for an estimator that has it, and for a product over batches."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from fedscope.landscape.operators.basis.kept import Pieces
from fedscope.landscape.operators.basis.rows import BasisRows, Waiting

Image = Callable[[Tensor], Tensor]
"""Vectors in rows (k, n) ↦ vectors in rows."""
_WIDTH = 1 << 16  # columns converted to float64 at a time


class Basis:
    """Q (m, n), orthonormal: the first m of ``rows``, which may grow. Vectors are in the operator's dtype."""

    def __init__(self, rows: BasisRows, count: int) -> None:
        self._rows, self._count = rows, count

    @classmethod
    def of(cls, rows: Tensor) -> "Basis":
        return cls(BasisRows.of(rows), len(rows))

    def __len__(self) -> int:
        return self._count

    @property
    def device(self) -> torch.device:
        return self._rows.device

    @property
    def nbytes(self) -> int:
        return self._count * self._rows.n * self._rows.dtype.itemsize

    @property
    def tensor(self) -> Tensor:
        """The rows (m, n); a copy unless they are plain."""
        return self._rows.tensor(self._count)

    def continued(self, outside: Tensor) -> BasisRows:
        """Return rows that begin with these and ``outside`` (n,), and may grow while these stay.

        Plain rows are copied. Others are not, as long as nothing but ``outside`` has been appended to them.
        """
        rows, count = self._rows, self._count
        if not rows.plain and len(rows) == min(count + 1, rows.n):
            return rows
        return rows.copied(count, outside if count < rows.n else None)

    def kept(self, device: torch.device | str) -> "Basis":
        return Basis.of(self.tensor.to(device))

    def pieces(self, begin: int = 0) -> Pieces:
        return self._rows.wide(begin, self._count, _WIDTH)

    def without(self, v: Tensor) -> Tensor:
        """Return (1 − P) v for (n,) or rows (r, n), in v's dtype."""
        if self._rows.plain:
            return without(self.tensor, v)
        left: Tensor = torch.atleast_2d(v).to(self._rows.dtype, copy=True)
        self._rows.take_out(self._count, left)
        return left.to(v.dtype).view(v.shape)


class Onto:
    """The first rows as a product's ``onto``: ``onto @ X`` is what they see of columns X.

    ``fixed``: the fixed rows come before them; ``image``: a symmetric map of vectors in rows (k, n) that they
    are seen through.
    """

    def __init__(self, rows: BasisRows, count: int, *, fixed: bool, image: Image | None = None) -> None:
        self._rows, self._count, self._fixed, self.image = rows, count, fixed, image

    def __len__(self) -> int:
        return self._count + (self._rows.fixed if self._fixed else 0)

    def through(self, image: Image) -> "Onto":
        before = self.image
        both = image if before is None else (lambda vectors: before(image(vectors)))
        return Onto(self._rows, self._count, fixed=self._fixed, image=both)

    def seen(self, vectors: Tensor | Waiting) -> Tensor:
        """Return the inner products (r, k) with k vectors (k, n), in float64; no map."""
        if isinstance(vectors, Tensor):
            vectors = vectors.to(self._rows.dtype)
        found = self._rows.seen(self._count, vectors)
        return found if self._fixed else found[self._rows.fixed :]

    def waiting(self, count: int) -> Waiting | None:
        """Return room for so many vectors that wait, where the rows are in a file and no map is between."""
        in_file = self._rows.storage.place == "file" and self.image is None
        return self._rows.waiting(count) if in_file else None

    def columns(self, count: int) -> Tensor:
        """Return about so many columns of the rows as they are kept, to tell bases apart."""
        return self._rows.sampled(len(self), count)

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the inner products (r, k) with columns (n, k), (r,) with one (n,), in float64."""
        vectors = columns[None] if columns.ndim == 1 else columns.T
        found = self.seen(vectors if self.image is None else self.image(vectors))
        return found[:, 0] if columns.ndim == 1 else found


def onto(rows: BasisRows, count: int, *, fixed: bool) -> Tensor:
    """Return the first rows, with ``fixed`` those before them too, as a product's ``onto``."""
    if not rows.plain:
        return cast(Tensor, Onto(rows, count, fixed=fixed))
    return rows.tensor(count, fixed=fixed)


def through(onto: Tensor, image: Image) -> Tensor:
    """Return rows (r, n) under a symmetric map of vectors in rows; those of a basis are not copied."""
    return cast(Tensor, onto.through(image)) if isinstance(onto, Onto) else image(onto)


def without(basis: Tensor, v: Tensor) -> Tensor:
    """Return (1 − P) v for (n,) or rows (m, n), in v's dtype; P projects on the orthonormal rows (r, n)."""
    return v - (v @ basis.T.to(v.dtype)) @ basis.to(v.dtype)
