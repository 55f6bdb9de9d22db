"""Rows that the products of batches are projected on: a tensor, or a basis too long to be one."""

from collections.abc import Callable
from typing import cast

from torch import Tensor

from fedscope.landscape.operators.basis_rows import BasisRows
from fedscope.landscape.operators.row_space import RowSpace

Image = Callable[[Tensor], Tensor]
"""Vectors in rows (k, n) ↦ vectors in rows."""


class Onto:
    """A product's ``onto``, in place of a tensor: ``onto @ X`` is what rows see of columns X.

    ``image``: a symmetric map of vectors in rows (k, n) that they are seen through.
    """

    def __init__(self, rows: BasisRows, image: Image | None = None) -> None:
        self._rows, self._image = rows, image

    def __len__(self) -> int:
        return len(self._rows)

    def through(self, image: Image) -> "Onto":
        before = self._image
        return Onto(self._rows, image if before is None else (lambda vectors: before(image(vectors))))

    def seen(self, vectors: Tensor | RowSpace) -> Tensor:
        """Return the inner products (r, k) with k vectors (k, n), in float64; no map."""
        return self._rows.seen(vectors.to(self._rows.dtype) if isinstance(vectors, Tensor) else vectors)

    def waiting(self, count: int) -> RowSpace | None:
        """Return room for so many vectors that wait, where the rows are in a file and no map is between."""
        return self._rows.waiting(count) if self._image is None else None

    def sampled(self, columns: int) -> Tensor:
        return self._rows.sampled(columns)

    def __matmul__(self, columns: Tensor) -> Tensor:
        """Return the inner products (r, k) with columns (n, k), (r,) with one (n,), in float64."""
        vectors = columns[None] if columns.ndim == 1 else columns.T
        found = self.seen(vectors if self._image is None else self._image(vectors))
        return found[:, 0] if columns.ndim == 1 else found


def onto(rows: BasisRows) -> Tensor:
    """Return rows as a product's ``onto``."""
    return rows.tensor if rows.plain else cast(Tensor, Onto(rows))


def through(onto: Tensor, image: Image) -> Tensor:
    """Return rows (r, n) under a symmetric map of vectors in rows; those of a basis are not copied."""
    return cast(Tensor, onto.through(image)) if isinstance(onto, Onto) else image(onto)
