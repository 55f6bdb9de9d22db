import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator, top_eigenpairs

from .cases import Case, matrix_operator, mlp, symmetric


def _descending(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvalsh(matrix)
    return values.flip(0)


@pytest.mark.parametrize("k", [1, 5])
def test_the_largest_eigenvalues_of_a_net(case: Case, dense: Tensor, k: int) -> None:
    found = top_eigenpairs(case.operator, k=k, tol=1e-8)
    assert found.converged
    torch.testing.assert_close(found.values, _descending(dense)[:k], rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(dense @ found.vectors, found.vectors * found.values, rtol=0, atol=1e-7)
    torch.testing.assert_close(found.vectors.T @ found.vectors, torch.eye(k, dtype=torch.float64))


def test_the_whole_spectrum(case: Case, dense: Tensor) -> None:
    n = len(dense)
    found = top_eigenpairs(case.operator, k=n, tol=1e-8)
    assert found.converged
    assert found.matvecs == 2 * n
    torch.testing.assert_close(found.values, _descending(dense), rtol=1e-6, atol=1e-10)


def test_the_residual_bounds_the_error_and_is_the_true_one() -> None:
    spectrum = torch.linspace(0, 1, 200).double() ** 4
    matrix = symmetric(spectrum)
    found = top_eigenpairs(matrix_operator(matrix), k=3, tol=1e-2)
    assert found.converged
    assert bool((found.residuals <= 1e-2 * found.values[0]).all())
    assert bool((found.residuals > 0).all())
    remainder = matrix @ found.vectors - found.vectors * found.values
    torch.testing.assert_close(remainder.norm(dim=0), found.residuals)
    nearest = (found.values[:, None] - spectrum).abs().min(1).values
    assert bool((nearest <= found.residuals).all())
    assert found.matvecs < 60


def test_algebraically_largest_not_largest_in_size() -> None:
    found = top_eigenpairs(matrix_operator(symmetric(torch.linspace(-9, 2, 50))), k=2, tol=1e-6)
    torch.testing.assert_close(found.values, torch.linspace(-9, 2, 50).double()[-2:].flip(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "spectrum",
    [[5.0, 5, 5, 1, 1, 1], [2.0] * 6, [0.0] * 6, [-1.0, -1, -1, -1, -3, -3], [7.0, 7, 4, 4, 4, 0, 0, 0]],
)
def test_multiple_eigenvalues_are_counted_with_their_multiplicity(
    spectrum: list[float], dtype: torch.dtype
) -> None:
    matrix = symmetric(torch.tensor(spectrum)).to(dtype)
    expected = torch.tensor(sorted(spectrum, reverse=True), dtype=torch.float64)
    for k in range(1, len(spectrum) + 1):
        found = top_eigenpairs(matrix_operator(matrix), k=k)
        assert found.converged
        torch.testing.assert_close(found.values, expected[:k], rtol=1e-4, atol=1e-5)
        gram = found.vectors.T @ found.vectors
        torch.testing.assert_close(gram, torch.eye(k, dtype=dtype), rtol=0, atol=1e-5)


def test_float32_reaches_its_rounding_and_stops_there() -> None:
    matrix = symmetric(torch.linspace(0, 1, 80) ** 3).float()
    assert top_eigenpairs(matrix_operator(matrix), k=4, tol=1e-5).converged
    hopeless = top_eigenpairs(matrix_operator(matrix * 1e-3 - torch.eye(80)), k=1, tol=1e-9)
    assert float(hopeless.residuals[0]) < 1e-5
    assert hopeless.matvecs <= 80 + 20


def test_the_budget_is_kept_and_reported() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 300)))
    found = top_eigenpairs(operator, k=3, tol=1e-10, max_matvecs=20)
    assert not found.converged
    assert found.matvecs == 20
    assert float(found.residuals.max()) > 1e-10


def test_every_product_is_counted_and_announced() -> None:
    matrix, calls, seen = symmetric(torch.linspace(0, 1, 50)), [0], list[int]()

    def matvec(v: Tensor) -> Tensor:
        calls[0] += 1
        return matrix @ v

    found = top_eigenpairs(LambdaOperator(matvec, 50), k=2, progress=lambda done, _: seen.append(done))
    assert found.matvecs == calls[0] == seen[-1]
    assert seen == sorted(seen)


def test_the_generator_decides_and_the_default_repeats() -> None:
    operator = matrix_operator(symmetric(torch.linspace(0, 1, 50)))
    first, again = top_eigenpairs(operator), top_eigenpairs(operator)
    other = top_eigenpairs(operator, generator=torch.Generator().manual_seed(7))
    assert torch.equal(first.vectors, again.vectors)
    assert not torch.equal(first.vectors, other.vectors)
    assert (first.seed, other.seed) == (0, 7)


def test_the_data_error_is_that_of_the_mean_over_batches() -> None:
    case = mlp()
    found = top_eigenpairs(case.operator, k=2)
    forms = torch.stack(
        [
            v @ Hessian(case.model, case.loss_fn, Batches(x, y)).matvec(v)
            for v in found.vectors.T
            for x, y in case.batches
        ]
    ).view(2, 3)
    counts = torch.tensor([8.0, 8.0, 7.0]).double()
    spread = (counts * (forms - found.values[:, None]) ** 2).sum(1) / (2 * 23)
    torch.testing.assert_close(found.stderr_data, spread.sqrt())
    alone = Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets))
    assert bool(top_eigenpairs(alone).stderr_data.isnan())


def test_non_finite_curvature_comes_out_as_nan() -> None:
    case = mlp()
    with torch.no_grad():
        case.model[0].weight[0, 0] = torch.nan  # type: ignore[index]
    found = top_eigenpairs(case.operator, k=2)
    assert not found.converged
    assert bool(found.values.isnan().all())
    assert found.vectors.shape == (51, 2)


def test_impossible_requests_are_refused() -> None:
    operator = matrix_operator(torch.eye(3).double())
    with pytest.raises(UserError, match="1 to 3"):
        top_eigenpairs(operator, k=4)
    with pytest.raises(UserError, match="1 to 3"):
        top_eigenpairs(operator, k=0)
    with pytest.raises(UserError, match="at least 4"):
        top_eigenpairs(operator, k=2, max_matvecs=3)


def test_a_large_space_is_no_breakdown() -> None:
    # β₁ ≈ ‖A‖_F/√n is far below tol·λ_max here, as it is for a network of a million parameters.
    spectrum = torch.zeros(200_000, dtype=torch.float64)
    spectrum[:4] = torch.tensor([12.0, 10.0, 9.0, 8.0])
    spectrum[4:100] = torch.linspace(0, 5, 96)
    pairs = top_eigenpairs(LambdaOperator(lambda v: spectrum * v, len(spectrum)), k=2, tol=1e-2)
    assert pairs.converged
    assert pairs.values.tolist() == pytest.approx([12, 10], rel=1e-3)
    assert pairs.matvecs < 40
