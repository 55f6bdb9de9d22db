import pytest
import torch
from torch import Tensor

from fedscope.landscape import LambdaOperator, Operator
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from tests.landscape.cases import Case, matrix_operator, symmetric


def _run(matrix: Tensor, steps: int, start: Tensor | None = None) -> Lanczos:
    return _walk(matrix_operator(matrix), steps, start)


def _walk(operator: Operator, steps: int, start: Tensor | None = None) -> Lanczos:
    generator = torch.Generator().manual_seed(0)
    if start is None:
        start = torch.randn(operator.shape[0], generator=generator, dtype=torch.float64)
    krylov = Lanczos(operator, start, generator=generator, by_batch=True)
    for _ in range(steps):
        krylov.step()
    return krylov


def _check_relation(matrix: Tensor, krylov: Lanczos) -> None:
    """A Qᵀ = Qᵀ T + q bᵀ, as the subspace states it."""
    known = krylov.subspace()
    left = matrix @ known.basis.T
    right = known.basis.T @ known.projected + known.outside[:, None] * known.coupling
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12 * float(matrix.norm()))
    rows = torch.cat([known.basis, known.outside[None]])
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(rows), dtype=torch.float64))


def test_the_lanczos_relation_holds() -> None:
    matrix = symmetric(torch.linspace(-3, 5, 40))
    krylov = _run(matrix, 20)
    Q, T = krylov.basis.T, krylov.projected
    assert float((T - T.triu(-1).tril(1)).abs().max()) < 1e-13
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
    found = torch.linalg.eigvalsh(krylov.projected)
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
        torch.linalg.eigvalsh(krylov.projected), torch.tensor(sorted(spectrum), dtype=torch.float64)
    )


def test_a_start_in_an_invariant_space_breaks_down_there() -> None:
    krylov = _run(torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0])).double(), 3, torch.tensor([1.0, 1.0, 0, 0]))
    assert krylov.betas[1] == 0
    torch.testing.assert_close(
        torch.linalg.eigvalsh(krylov.projected[:2, :2]), torch.tensor([3.0, 4.0], dtype=torch.float64)
    )


def test_a_product_that_is_not_finite_ends_the_process() -> None:
    generator = torch.Generator().manual_seed(0)
    operator = LambdaOperator(lambda v: v * torch.nan, 3)
    krylov = Lanczos(operator, torch.ones(3), generator=generator)
    krylov.step()
    assert not krylov.finite
    with pytest.raises(ValueError, match="finite"):
        krylov.step()


def test_a_restart_keeps_the_relation_and_goes_on() -> None:
    matrix = symmetric(torch.linspace(-3, 5, 60) ** 3)
    krylov = _run(matrix, 25)
    theta, s = torch.linalg.eigh(krylov.projected)
    krylov.restart(s[:, -10:])
    assert (krylov.steps, krylov.matvecs) == (10, 25)
    torch.testing.assert_close(krylov.projected, torch.diag(theta[-10:]))
    _check_relation(matrix, krylov)
    for _ in range(12):
        krylov.step()
    assert (krylov.steps, krylov.matvecs) == (22, 37)
    _check_relation(matrix, krylov)
    # The tenth largest was 0.006 short of its eigenvalue; the largest had converged to the last bit.
    assert float(torch.linalg.eigvalsh(krylov.projected)[-10]) > float(theta[-10]) + 1e-3


def test_every_batch_is_projected_onto_the_basis(case: Case) -> None:
    krylov = _walk(case.operator, 12)
    parts = [
        type(case)(case.name, case.model, case.loss_fn, x, y, case.batch_size).dense()
        for x, y in case.batches
    ]
    for _ in range(2):
        known = krylov.subspace()
        assert known.batches is not None
        for found, part in zip(known.batches, parts, strict=True):
            torch.testing.assert_close(found, known.basis @ part @ known.basis.T, rtol=0, atol=1e-10)
        krylov.restart(torch.linalg.eigh(krylov.projected)[1][:, -5:])


def test_a_resumed_process_takes_the_same_steps() -> None:
    matrix = symmetric(torch.linspace(0, 1, 50) ** 2)
    whole, first = _run(matrix, 20), _run(matrix, 12)
    resumed = Lanczos.resumed(
        matrix_operator(matrix), first.subspace(), generator=torch.Generator().manual_seed(0)
    )
    for _ in range(8):
        resumed.step()
    assert (resumed.steps, resumed.matvecs) == (20, 20)
    torch.testing.assert_close(resumed.projected, whole.projected)
    torch.testing.assert_close(resumed.basis, whole.basis)


def test_residuals_hold_in_float32() -> None:
    spectrum = torch.linspace(0, 1, 20_000)  # float32 numbers: the operator is exactly this
    spectrum[-4:] = torch.tensor([5.0, 6.0, 8.0, 11.0])
    krylov = _walk(LambdaOperator(lambda v: spectrum * v, len(spectrum), torch.float32), 60)
    theta, s = torch.linalg.eigh(krylov.projected)
    vectors = krylov.combine(s).double()
    true = (spectrum.double()[:, None] * vectors - vectors * theta).norm(dim=0) / vectors.norm(dim=0)
    claimed = krylov.residuals(theta, s)
    assert float(claimed[-1]) < 3e-5 < 1e-3 < float(claimed[0])  # converged, and not
    assert bool((true <= claimed).all())
    assert bool((claimed <= true + 3e-5).all())


def test_the_noise_is_the_asymmetry_of_the_products() -> None:
    matrix, skew = symmetric(torch.linspace(0, 1, 30)), torch.randn(30, 30).double()
    skew = 1e-6 * (skew - skew.T)
    krylov = _run(matrix + skew, 30)
    assert krylov.noise == pytest.approx(float(torch.linalg.matrix_norm(skew, 2)), rel=1e-6)
    assert _run(matrix, 30).noise < 1e-14


def test_what_lies_beyond_the_basis_turns_with_it(case: Case) -> None:
    """A restart that keeps every row keeps the space: each batch's image outside it is turned, no more."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(case.operator.shape[0], generator=generator, dtype=torch.float64)
    krylov = Lanczos(case.operator, start, generator=generator, by_batch=True, sketched=5)
    for _ in range(8):
        krylov.step()
    before, turn = krylov.subspace().beyond, torch.linalg.eigh(krylov.projected)[1]
    krylov.restart(turn)
    after = krylov.subspace().beyond
    assert before is not None
    assert after is not None
    assert float(before.norm()) > 1e-3
    torch.testing.assert_close(after, turn.T @ before, rtol=0, atol=1e-10)
