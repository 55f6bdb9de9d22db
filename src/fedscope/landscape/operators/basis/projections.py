"""Projections of the products of batches on rows: on a tensor, or on a basis too long to be one.

An operator made of another one by a symmetric map hands the rows on under that map.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product, Wrapper
from fedscope.landscape.operators.basis.basis_rows import BasisRows
from fedscope.landscape.operators.basis.row_space import RowSpace

Image = Callable[[Tensor], Tensor]
"""A vector (n,), or vectors in rows (k, n) ↦ the same in this form."""


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


class Conjugated(Wrapper):
    """M A M of an operator A and a symmetric map M of vectors, whose norm is ``size``."""

    def __init__(self, base: Operator, image: Image, size: float = 1.0) -> None:
        super().__init__(base)
        self._image, self._size = image, size

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        outer = None if onto is None else through(onto, self._image)
        return self._mapped(self._base._apply(self._image(rows), outer))

    def _alone(self, rows: Tensor) -> list[Product]:
        return self._mapped(self._base._alone(self._image(rows)))

    def _mapped(self, found: list[Product]) -> list[Product]:
        return [replace(one, vector=self._image(one.vector), error=self._size * one.error) for one in found]
