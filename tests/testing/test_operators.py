"""The conformance suite on every operator of the package, and on operators that break one law each."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fedscope.landscape import (
    BatchMean,
    EmpiricalFisher,
    GaussNewton,
    Hessian,
    LambdaOperator,
    MonteCarloFisher,
    Operator,
    Product,
)
from fedscope.landscape.operators.product_cache import Journaled
from fedscope.testing import BatchMeanConformance, OperatorConformance
from tests.landscape.cases import Case, mlp
from tests.testing.laws import broken_laws


def matrix(n: int = 7) -> Tensor:
    square = torch.randn(n, n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return square + square.T


class TestAMatrix(OperatorConformance):
    def operator(self) -> Operator:
        return LambdaOperator(matrix().mv, 7)

    def dense(self) -> Tensor:
        return matrix()


class TestHessian(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return _of(Hessian, mlp())

    def dense(self) -> Tensor:
        return mlp().dense()


class TestGaussNewton(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return _of(GaussNewton, mlp())


class TestEmpiricalFisher(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return _of(EmpiricalFisher, mlp())


class TestMonteCarloFisher(BatchMeanConformance):
    def operator(self) -> BatchMean:
        return _of(MonteCarloFisher, mlp())


class TestAMultiple(OperatorConformance):
    def operator(self) -> Operator:
        return 3 * _of(Hessian, mlp())


class TestASumOfOperators(OperatorConformance):
    def operator(self) -> Operator:
        return _of(Hessian, mlp()) + 0.5 * _of(GaussNewton, mlp())


class TestProductsFromDisk(OperatorConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.folder = tmp_path_factory.mktemp("products")

    def operator(self) -> Operator:
        return Journaled(_of(Hessian, mlp()), self.folder / "products", below=self.folder)


def _of(kind: Callable[..., BatchMean], case: Case) -> BatchMean:
    return kind(case.model, case.loss_fn, case.batches)


class Broken(OperatorConformance):
    """A conformance suite of one product, which is called as a function here."""

    def __init__(self, times: Callable[[Tensor], Tensor]) -> None:
        self.times = times

    def operator(self) -> Operator:
        return LambdaOperator(self.times, 7)

    def dense(self) -> Tensor:
        return matrix()


def _writes(v: Tensor) -> Tensor:
    found = matrix().mv(v)
    v += 1
    return found


class _Drifting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, v: Tensor) -> Tensor:
        self.calls += 1
        return matrix().mv(v) * (1 + 1e-3 * self.calls)


@pytest.mark.parametrize(
    ("times", "law"),
    [
        (torch.ones(7, 7, dtype=torch.float64).tril().mv, "it_is_symmetric"),
        (lambda v: matrix().mv(v) + 1, "it_is_linear"),
        (lambda v: matrix().mv(v).float(), "a_product_has_the_shape_dtype_and_device_of_the_operator"),
        (_writes, "the_vector_is_left_as_it_is"),
        (_Drifting(), "the_same_product_twice_has_the_same_bits"),
        (lambda v: 2 * matrix().mv(v), "it_is_its_matrix"),
    ],
)
def test_a_broken_law_is_named(times: Callable[[Tensor], Tensor], law: str) -> None:
    assert law in broken_laws(Broken(times))


class _Forms(LambdaOperator):
    """A mean over two batches whose forms are not weighted as they should be."""

    def __init__(self) -> None:
        super().__init__(matrix().mv, 7)
        self.weights = (1, 3)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        half = torch.tensor([0.5, 1.5], dtype=torch.float64)
        return [
            Product(matrix().mv(v), half * (v @ matrix().mv(v)), None if onto is None else half[:, None])
            for v in rows
        ]


def test_forms_that_do_not_add_up_are_named() -> None:
    class Wrong(OperatorConformance):
        def operator(self) -> Operator:
            return _Forms()

    assert "forms" in broken_laws(Wrong())["batches_add_up"]


def test_an_honest_matrix_breaks_none() -> None:
    assert broken_laws(Broken(matrix().mv)) == {}
