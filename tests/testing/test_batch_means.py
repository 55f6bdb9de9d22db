"""The suite of means over batches on dense matrices, and on operators that break one law each.

On the package's own it runs in :mod:`tests.testing.test_operators`.
"""

import pytest
import torch
from torch import Tensor

from fedscope.landscape import BatchMean, Product
from fedscope.testing import BatchMeanConformance
from tests.testing.laws import broken_laws

N = 7


class Matrices(BatchMean):
    """The mean of three symmetric matrices."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(N, weights=(2, 3, 5), dtype=dtype)
        square = torch.randn(3, N, N, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        self.matrices = (square + square.mT).to(dtype)

    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        return rows @ self.matrices[b]


class TestMatrices(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return Matrices()

    def dense(self) -> Tensor:
        return torch.einsum(
            "b,bij->ij", torch.tensor([2, 3, 5], dtype=torch.float64) / 10, Matrices().matrices
        )


class TestMatricesOfSingles(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return Matrices(torch.float32)


class TestOneBatch(BatchMeanConformance):
    def operator(self) -> BatchMean:
        class One(Matrices):
            def __init__(self) -> None:
                BatchMean.__init__(self, N, weights=(4,))
                self.matrices = Matrices().matrices

        return One()


class _Crooked(Matrices):
    """Two parts are not symmetric, and their mean is."""

    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        skew = torch.ones(N, N, dtype=torch.float64).triu(1)
        return super().batch_products(b, rows) + (3.0, -2.0, 0.0)[b] * rows @ (skew - skew.T)


class _Bent(Matrices):
    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        return super().batch_products(b, rows) + (b == 1) * rows.abs()


class _Misweighted(Matrices):
    """Its products are the plain mean, whatever the batches' sizes."""

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [
            Product(self.matrices.mean(0) @ v, found.forms, found.onto)
            for v, found in zip(rows, super()._apply(rows, onto), strict=True)
        ]


class _Mixed(Matrices):
    """The forms are those of the batches in another order."""

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [
            Product(found.vector, None if found.forms is None else found.forms.flip(0), found.onto)
            for found in super()._apply(rows, onto)
        ]


class _Writing(Matrices):
    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        return rows.mul_(2) @ self.matrices[b] / 2


class _Drifting(Matrices):
    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        self.matrices = self.matrices * 1.001
        return super().batch_products(b, rows)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (_Crooked, "a_batchs_part_is_linear_and_symmetric"),
        (_Bent, "a_batchs_part_is_linear_and_symmetric"),
        (_Misweighted, "the_mean_of_the_parts_is_the_operator"),
        (_Mixed, "forms_are_the_batches_own"),
        (_Writing, "rows_are_left_as_they_are"),
        (_Drifting, "rows_are_left_as_they_are"),
    ],
)
def test_a_broken_law_is_named(kind: type[Matrices], law: str) -> None:
    class Suite(BatchMeanConformance):
        def operator(self) -> BatchMean:
            return kind()

    assert law in broken_laws(Suite())
