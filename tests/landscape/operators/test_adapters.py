"""Operators of other libraries against ours: of those that are installed, and of stand-ins."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Operator, as_operator, top_eigenpairs, trace
from fedscope.testing import OperatorConformance
from tests.landscape.cases import mlp, symmetric

MATRIX = symmetric(torch.linspace(-2, 7, 12))


class _Like:
    """What curvlinops' operators have: a shape, a dtype, a device, and ``@`` of vectors."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix
        self.shape, self.dtype, self.device = tuple(matrix.shape), matrix.dtype, matrix.device

    def __matmul__(self, v: Tensor) -> Tensor:
        return (self._matrix @ v).requires_grad_()


class _Sized(_Like):
    """What those of hessian-eigenthings have: a size in place of the shape."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self.size = len(matrix)
        del self.shape


FORMS: dict[str, Any] = {
    "tensor": MATRIX,
    "array": MATRIX.numpy(),
    "sparse": csr_array(MATRIX.numpy()),
    "LinearOperator": aslinearoperator(MATRIX.numpy()),
    "of products alone": LinearOperator((12, 12), matvec=lambda v: MATRIX.numpy() @ v, dtype=np.float64),
    "curvlinops": _Like(MATRIX),
    "hessian-eigenthings": _Sized(MATRIX),
    "there and back": as_operator(MATRIX).to_scipy(),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_is_its_matrix(form: str) -> None:
    operator = as_operator(FORMS[form])
    assert (operator.dtype, operator.device.type) == (torch.float64, "cpu")
    torch.testing.assert_close(operator.to_dense(), MATRIX)
    assert float(top_eigenpairs(operator, tol=1e-9).values[0]) == pytest.approx(7)
    assert not (operator @ torch.ones(12, dtype=torch.float64)).requires_grad


class TestALinearOperator(OperatorConformance):
    def operator(self) -> Operator:
        return as_operator(FORMS["of products alone"])

    def dense(self) -> Tensor:
        return MATRIX


class TestAnOperatorOfSingles(OperatorConformance):
    def operator(self) -> Operator:
        return as_operator(_Like(MATRIX.float()))


def test_an_operator_stays_itself_and_another_gets_its_names() -> None:
    H = mlp().operator
    assert as_operator(H) is H
    dense = as_operator(H.to_dense(), like=H)
    assert dense.blocks == H.blocks
    off = (H - dense) @ H.unflatten(torch.ones(51, dtype=torch.float64))
    assert list(off) == list(H.names)
    assert all(float(tensor.abs().max()) < 1e-12 for tensor in off.values())


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        (torch.ones(3, 4), r"\(3, 4\) is not square"),
        (torch.ones(3), "not square"),
        (torch.ones(0, 0), "not square"),
        (torch.ones(3, 3).triu(), "not symmetric"),
        (np.ones((3, 3), dtype=int), "dtype int64 cannot"),
        (torch.ones(3, 3, dtype=torch.complex64), "complex64 cannot"),
        (_Like(torch.rand(6, 6, generator=torch.Generator().manual_seed(0))), "not symmetric"),
        (nn.Linear(2, 2), "Linear is no matrix"),
        ("H", "str is no matrix"),
    ],
)
def test_what_is_no_symmetric_matrix_is_refused(matrix: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        as_operator(matrix)


def test_another_size_than_the_one_it_is_like_is_refused() -> None:
    with pytest.raises(UserError, match="12 rows, the operator that it is to be like 51"):
        as_operator(MATRIX, like=mlp().operator)


@pytest.mark.filterwarnings("ignore")
def test_curvlinops_operators_are_taken() -> None:
    curvlinops = pytest.importorskip("curvlinops")
    case = mlp()
    theirs = curvlinops.HessianLinearOperator(
        case.model, nn.CrossEntropyLoss(), list(case.model.parameters()), list(case.batches)
    )
    _are_the_same(as_operator(theirs, like=case.operator), case.operator)


@pytest.mark.filterwarnings("ignore")
def test_hessian_eigenthings_operators_are_taken_and_take_ours() -> None:
    library = pytest.importorskip("hessian_eigenthings")
    case = mlp()
    theirs = library.HessianOperator(
        case.model, [(case.inputs, case.targets)], library.supervised_loss(case.loss_fn)
    )
    _are_the_same(as_operator(theirs, like=case.operator), case.operator)
    H = case.operator
    found = library.lanczos(
        library.LambdaOperator(H.matvec, H.shape[0], dtype=H.dtype), k=1, max_iter=40, which="LA", seed=0
    )
    expected = top_eigenpairs(H, tol=1e-8).values
    torch.testing.assert_close(found.eigenvalues.double(), expected, rtol=1e-5, atol=0)


def _are_the_same(theirs: Operator, ours: Operator) -> None:
    torch.testing.assert_close(theirs.to_dense(), ours.to_dense(), rtol=1e-8, atol=1e-10)
    assert trace(theirs, probes=4).value == pytest.approx(trace(ours, probes=4).value)
    assert theirs.shapes == ours.shapes
