import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import LambdaOperator
from tests.landscape.cases import Case


def test_a_dense_matrix_is_that_of_the_products_or_refused(case: Case, dense: Tensor) -> None:
    torch.testing.assert_close(case.operator.to_dense(), dense, rtol=1e-10, atol=1e-12)
    with pytest.raises(UserError, match=r"275,572 × 275,572 matrix takes 282\.9 GiB, memory is 4\.0 GiB"):
        LambdaOperator(lambda v: v, 275_572, torch.float32).to_dense()
    with pytest.raises(UserError, match="memory is"):
        case.operator.to_dense(memory=8 * len(dense) ** 2 - 1)


def test_scipy_finds_the_same_largest_eigenvalue(case: Case, dense: Tensor) -> None:
    (value,) = eigsh(
        case.operator.to_scipy(), k=1, which="LA", return_eigenvectors=False, v0=np.ones(len(dense))
    )
    assert value == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-9)


def test_scipy_s_arrays_may_be_reversed(case: Case, dense: Tensor) -> None:
    matrix, v = case.operator.to_scipy(), np.arange(len(dense), dtype=np.float64)
    np.testing.assert_allclose(matrix @ v[::-1], dense.numpy() @ v[::-1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        matrix @ np.eye(len(dense))[::-1], dense.numpy()[:, ::-1], rtol=1e-9, atol=1e-12
    )
