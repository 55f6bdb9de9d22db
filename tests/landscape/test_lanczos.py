import pytest
import torch
from torch import Tensor

from fedscope.landscape import LambdaOperator
from fedscope.landscape.lanczos import Lanczos

from .cases import matrix_operator, symmetric


def _run(matrix: Tensor, steps: int, start: Tensor | None = None) -> Lanczos:
    generator = torch.Generator().manual_seed(0)
    if start is None:
        start = torch.randn(len(matrix), generator=generator, dtype=torch.float64)
    krylov = Lanczos(matrix_operator(matrix), start, generator=generator)
    for _ in range(steps):
        krylov.step()
    return krylov


def test_the_lanczos_relation_holds() -> None:
    matrix = symmetric(torch.linspace(-3, 5, 40))
    krylov = _run(matrix, 20)
    Q, T = krylov.basis.T, krylov.tridiagonal()
    remainder = matrix @ Q - Q @ T
    torch.testing.assert_close(remainder[:, :-1], torch.zeros(40, 19, dtype=torch.float64))
    assert float(remainder[:, -1].norm()) == pytest.approx(krylov.betas[-1])
    torch.testing.assert_close(krylov.combine(T), Q @ T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_basis_stays_orthonormal_long_after_convergence(dtype: torch.dtype) -> None:
    spectrum = torch.cat([torch.tensor([1e4, 1e3, 1e2]), torch.linspace(0, 1, 117)])
    Q = _run(symmetric(spectrum).to(dtype), 110).basis.double()
    assert float((Q @ Q.T - torch.eye(110)).abs().max()) < 30 * torch.finfo(dtype).eps


def test_all_steps_give_the_whole_spectrum_without_ghosts() -> None:
    spectrum = torch.cat([torch.tensor([-1e3, 1e3]), torch.linspace(0, 1, 58)]).double()
    krylov = _run(symmetric(spectrum), 60)
    found = torch.linalg.eigvalsh(krylov.tridiagonal())
    torch.testing.assert_close(found, spectrum.sort().values, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="after 60 steps"):
        krylov.step()


@pytest.mark.parametrize("spectrum", [[2.0] * 6, [5.0, 5, 5, 1, 1, 1], [0.0] * 6, [1.0, 0, 0, 0, 0, 0]])
def test_a_breakdown_is_marked_and_passed(spectrum: list[float]) -> None:
    krylov = _run(symmetric(torch.tensor(spectrum)), 6)
    distinct = len(set(spectrum))
    assert krylov.betas[distinct - 1] == 0
    assert all(beta != 0 for beta in krylov.betas[: distinct - 1])
    torch.testing.assert_close(
        torch.linalg.eigvalsh(krylov.tridiagonal()), torch.tensor(sorted(spectrum), dtype=torch.float64)
    )


def test_a_start_in_an_invariant_space_breaks_down_there() -> None:
    krylov = _run(torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0])).double(), 3, torch.tensor([1.0, 1.0, 0, 0]))
    assert krylov.betas[1] == 0
    torch.testing.assert_close(
        torch.linalg.eigvalsh(krylov.tridiagonal()[:2, :2]), torch.tensor([3.0, 4.0], dtype=torch.float64)
    )


def test_a_product_that_is_not_finite_ends_the_process() -> None:
    generator = torch.Generator().manual_seed(0)
    operator = LambdaOperator(lambda v: v * torch.nan, 3)
    krylov = Lanczos(operator, torch.ones(3), generator=generator)
    krylov.step()
    assert not krylov.finite
    with pytest.raises(ValueError, match="finite"):
        krylov.step()
