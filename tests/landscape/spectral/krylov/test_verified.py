"""Certificates of eigenvalues and traces whose products have errors, against dense matrices."""

from zlib import crc32

import pytest
import torch
from torch import Tensor

from fedscope.landscape import Hessian, LambdaOperator, Operator, top_eigenpairs, trace
from fedscope.landscape.operators.base import Product
from tests.landscape.cases import Case


class Inexact(Operator):
    """A matrix whose products are off by a fixed, not symmetric, not linear error of a known size."""

    def __init__(self, matrix: Tensor, error: float) -> None:
        super().__init__(len(matrix), dtype=torch.float64, device="cpu")
        self._matrix, self._error = matrix, error

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        found = []
        for v in rows:
            generator = torch.Generator().manual_seed(crc32(v.numpy().tobytes()))
            draw = torch.randn(len(v), generator=generator, dtype=torch.float64)
            size = self._error * float(v.norm())
            away = size * draw / draw.norm()
            found.append(Product(self._matrix @ v + away, None, error=size, form_error=float(v @ away)))
        return found


class Shifted(Operator):
    """A matrix whose products are those of another symmetric one, A + δ·1: no residual of theirs shows it."""

    def __init__(self, matrix: Tensor, shift: float) -> None:
        super().__init__(len(matrix), dtype=torch.float64, device="cpu")
        self._matrix, self._shift = matrix, shift

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        return [
            Product(
                self._matrix @ v + self._shift * v,
                None,
                error=self._shift * float(v.norm()),
                form_error=self._shift * float(v @ v),
            )
            for v in rows
        ]


@pytest.fixture
def matrix() -> Tensor:
    """Of the eigenvalues 1/i, and −1/2."""
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(60, 60, dtype=torch.float64)).Q
    values = 1 / torch.arange(1, 61, dtype=torch.float64)
    values[-1] = -0.5
    found: Tensor = basis * values @ basis.T
    return found


@pytest.mark.parametrize("error", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("k", [1, 3])
def test_every_value_is_within_its_residual(matrix: Tensor, error: float, k: int) -> None:
    found = top_eigenpairs(Inexact(matrix, error), k=k, which="both", seed=1)
    values = torch.linalg.eigvalsh(matrix).flip(0)
    expected = torch.cat([values[:k], values[-k:]])
    assert bool(((found.values - expected).abs() <= found.residuals).all())
    assert bool((found.residuals >= error).all())
    within = error < (1e-3 if k == 1 else 1e-5)  # of the small values half a per cent is asked
    assert found.converged is bool(found.certified.all()) is within


def test_an_error_that_no_residual_shows_is_in_it(matrix: Tensor) -> None:
    found = top_eigenpairs(Shifted(matrix, 1e-4), k=2, seed=1)
    values = torch.linalg.eigvalsh(matrix).flip(0)[:2]
    torch.testing.assert_close(found.values - values, torch.full_like(values, 1e-4), rtol=1e-2, atol=0)
    assert bool(((found.values - values).abs() <= found.residuals).all())


def test_errors_beyond_the_tolerance_end_the_search(matrix: Tensor) -> None:
    spent = top_eigenpairs(Inexact(matrix, 1e-2), tol=1e-4, seed=1).matvecs
    assert spent < 30  # not the 330 that are allowed


def test_exact_products_are_not_taken_again(matrix: Tensor) -> None:
    exact, inexact = LambdaOperator(lambda v: matrix @ v, 60), Inexact(matrix, 1e-9)
    one, other = top_eigenpairs(exact, seed=1), top_eigenpairs(inexact, seed=1)
    assert other.matvecs > one.matvecs
    assert abs(float(one.values - other.values)) < 1e-6


@pytest.mark.parametrize("deflated", [False, True])
def test_the_trace_is_within_its_error(matrix: Tensor, deflated: bool) -> None:
    inexact = Inexact(matrix, 1e-3)
    known = top_eigenpairs(inexact, k=3, seed=1).subspace if deflated else None
    found = trace(inexact, known=known, probes=20, seed=2)
    exact = trace(LambdaOperator(lambda v: matrix @ v, 60), known=known, probes=20, seed=2)
    assert 0 < abs(found.value - exact.value) <= found.error
    low, high = found.interval()
    assert low < float(matrix.trace()) < high
    assert exact.error == (0 if known is None else pytest.approx(known.error * len(known.basis) ** 0.5))


def test_finite_differences_are_certified(case: Case, dense: Tensor) -> None:
    H = Hessian(case.model, case.loss_fn, case.batches, products="finite-differences")
    found = top_eigenpairs(H, k=2, seed=1)
    values = torch.linalg.eigvalsh(dense).flip(0)[:2]
    assert found.converged
    assert bool(((found.values - values).abs() <= found.residuals).all())
    total = trace(H, known=found.subspace, seed=1)
    exact = trace(case.operator, known=found.subspace, seed=1, probes=total.probes, max_basis=0)
    assert 0 < total.error < 1e-5 * abs(total.value)
    assert abs(total.value - exact.value) <= total.error + 1e-12
