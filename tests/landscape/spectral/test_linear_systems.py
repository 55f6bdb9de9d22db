"""Solutions against dense ones, their residuals against dense residuals, and systems that have none."""

import math

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import GaussNewton, LambdaOperator, solve
from fedscope.landscape.spectral.linear_systems import SolveMethod
from tests.landscape.cases import Case, matrix_operator, symmetric

POSITIVE = torch.linspace(1, 100, 60)
INDEFINITE = torch.cat([torch.linspace(-20, -1, 20), torch.linspace(1, 100, 40)])


def _b(n: int = 60) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class _Counted:
    """A dense matrix that counts its products."""

    def __init__(self, matrix: Tensor, dtype: torch.dtype = torch.float64) -> None:
        self.matrix, self.calls = matrix.to(dtype), 0
        self.operator = LambdaOperator(self._times, len(matrix), dtype)

    def _times(self, v: Tensor) -> Tensor:
        self.calls += 1
        return self.matrix @ v


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("method", "spectrum"), [("cg", POSITIVE), ("minres", POSITIVE), ("minres", INDEFINITE)]
)
def test_it_is_the_dense_solution(method: SolveMethod, spectrum: Tensor, dtype: torch.dtype) -> None:
    matrix, b = symmetric(spectrum), _b()
    counted, rtol = _Counted(matrix, dtype), 1e-10 if dtype == torch.float64 else 1e-5
    found = solve(counted.operator, b, method=method, rtol=rtol)
    rest = b - counted.matrix.double() @ found.x.double()
    assert found.converged
    assert found.x.dtype == dtype
    assert found.relative == found.residual / float(b.norm()) <= rtol
    assert found.residual == pytest.approx(float(rest.norm()), rel=0.1 if dtype == torch.float32 else 1e-4)
    assert found.matvecs == counted.calls
    assert found.iterations < found.matvecs < 90
    error = float((found.x.double() - torch.linalg.solve(matrix, b)).norm())
    assert error <= 1.1 * found.residual + 1e-6 * rtol  # the smallest size of an eigenvalue is 1


@pytest.mark.parametrize("method", ["cg", "minres"])
def test_damping_is_added_to_a_networks_curvature(case: Case, method: SolveMethod) -> None:
    G = GaussNewton(case.model, case.loss_fn, case.batches)
    b = G.gradient()
    found = solve(G, b, method=method, damping=0.1, rtol=1e-9)
    matrix = G.to_dense() + 0.1 * torch.eye(len(b), dtype=torch.float64)
    torch.testing.assert_close(found.x, torch.linalg.solve(matrix, b), rtol=1e-6, atol=1e-8)
    assert found.damping == 0.1
    same = solve(G.damped(0.1), b, method=method, rtol=1e-9)
    assert torch.equal(found.x, same.x)


def test_conjugate_gradients_refuse_what_is_not_positive_definite() -> None:
    operator = matrix_operator(symmetric(INDEFINITE))
    with pytest.raises(UserError, match=r"curvature -\d.*'minres', or a damping"):
        solve(operator, _b())
    assert solve(operator, _b(), damping=21).converged
    with pytest.raises(UserError, match="of curvature 0,"):
        solve(matrix_operator(torch.zeros(3, 3, dtype=torch.float64)), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_minres_of_an_inconsistent_system_has_the_least_residual(dtype: torch.dtype) -> None:
    spectrum = torch.cat([torch.zeros(10), torch.linspace(1, 100, 50)])
    matrix, b = symmetric(spectrum), _b()
    found = solve(_Counted(matrix, dtype).operator, b, method="minres", rtol=1e-8)
    least = torch.linalg.lstsq(matrix, b, driver="gelsd").solution
    assert not found.converged
    assert found.residual == pytest.approx(float((b - matrix @ least).norm()), rel=1e-4)
    assert found.matvecs < 100


def test_rounding_is_not_taken_for_convergence() -> None:
    """Recurrences alone would say 1e-14: in float32 products no such residual is there."""
    matrix = symmetric(torch.logspace(-3, 2, 60))
    counted = _Counted(matrix, torch.float32)
    found = solve(counted.operator, _b(), rtol=1e-14, max_matvecs=2000)
    rest = _b() - counted.matrix.double() @ found.x.double()
    assert not found.converged
    rounding = 10 * torch.finfo(torch.float32).eps * 100 * float(found.x.norm())  # of a product with x
    assert found.residual == pytest.approx(float(rest.norm()), abs=rounding)
    assert found.relative > 1e-9


def test_refinement_reaches_what_one_start_does_not() -> None:
    matrix = symmetric(torch.logspace(-4, 2, 60))
    found = solve(matrix_operator(matrix), _b(), method="minres", rtol=1e-10)
    assert found.converged
    assert found.matvecs > found.iterations + 1
    rest = _b() - matrix @ found.x
    assert float(rest.norm()) <= 1.1e-10 * float(_b().norm())


@pytest.mark.parametrize("method", ["cg", "minres"])
def test_products_that_run_out_are_said(method: SolveMethod) -> None:
    counted, seen = _Counted(symmetric(POSITIVE)), []
    found = solve(
        counted.operator, _b(), method=method, max_matvecs=10, progress=lambda *said: seen.append(said)
    )
    assert (found.converged, found.matvecs, found.iterations, counted.calls) == (False, 10, 9, 10)
    assert 1e-5 < found.relative < 1
    assert [done for done, *_ in seen] == list(range(1, 10))
    assert "asked" in seen[-1][2]


def test_nothing_is_solved_by_nothing() -> None:
    found = solve(matrix_operator(symmetric(POSITIVE)), torch.zeros(60))
    assert (found.converged, found.residual, found.relative, found.matvecs) == (True, 0, 0, 0)
    assert not found.x.any()


@pytest.mark.parametrize("method", ["cg", "minres"])
def test_what_is_not_finite_stays_so(method: SolveMethod) -> None:
    found = solve(LambdaOperator(lambda v: v * math.nan, 3), torch.ones(3), method=method)
    assert not found.converged
    assert math.isnan(found.residual)
    assert found.x.isnan().all()


def test_what_makes_no_sense_is_refused() -> None:
    operator = matrix_operator(symmetric(POSITIVE))
    with pytest.raises(UserError, match=r"expected \(60,\)"):
        solve(operator, torch.ones(59))
    with pytest.raises(UserError, match="not finite"):
        solve(operator, torch.full((60,), math.inf))
    with pytest.raises(UserError, match="cg, minres"):
        solve(operator, _b(), method="lu")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"rtol is 0\.0"):
        solve(operator, _b(), rtol=0.0)
    with pytest.raises(UserError, match="max_matvecs 1;"):
        solve(operator, _b(), max_matvecs=1)
