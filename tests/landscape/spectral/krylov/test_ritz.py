"""Eigenvalues of largest magnitude, at whichever end, beside those of an end that is named."""

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import top_eigenpairs
from fedscope.landscape.spectral.krylov.ritz import Goal, Ritz, Wanted
from tests.landscape.cases import Case, matrix_operator, symmetric

BOTH_WAYS = torch.cat([torch.linspace(-9, -4, 6), torch.linspace(-1, 1, 40), torch.linspace(3, 12, 6)])


def _largest_sizes(values: Tensor, k: int) -> Tensor:
    """The k values of largest size, descending by value."""
    chosen: Tensor = values[values.abs().argsort(descending=True)[:k]].sort(descending=True).values
    return chosen


@pytest.mark.parametrize("k", [1, 2, 5, 52])
def test_they_are_the_largest_in_size_with_their_signs(k: int) -> None:
    matrix = symmetric(BOTH_WAYS)
    found = top_eigenpairs(matrix_operator(matrix), k=k, which="magnitude", tol=1e-8)
    assert found.converged
    assert found.certified.all()
    torch.testing.assert_close(found.values, _largest_sizes(BOTH_WAYS.double(), k), rtol=1e-6, atol=1e-9)
    remainder = matrix @ found.vectors - found.vectors * found.values
    torch.testing.assert_close(remainder.norm(dim=0), found.residuals, rtol=0.1, atol=1e-12)


def test_the_largest_size_alone_may_be_negative() -> None:
    for sign in (1, -1):
        found = top_eigenpairs(matrix_operator(symmetric(sign * BOTH_WAYS)), which="magnitude", tol=1e-6)
        assert float(found.values[0]) == pytest.approx(12 * sign, rel=1e-5)
        assert found.certified.all()


def test_of_a_net_they_are_those_of_the_dense_matrix(case: Case, dense: Tensor) -> None:
    found = top_eigenpairs(case.operator, k=6, which="magnitude", tol=1e-9)
    expected = _largest_sizes(torch.linalg.eigvalsh(dense), 6)
    torch.testing.assert_close(found.values, expected, rtol=1e-6, atol=1e-12)
    assert found.stderr_data.isfinite().all()


@pytest.mark.parametrize("spectrum", [[5.0, 5, -5, -5, 1, 0, 0], [-7.0, -7, -7, 6, 6, 2, 1], [0.0] * 7])
def test_copies_at_both_ends_are_counted(spectrum: list[float]) -> None:
    for k in range(1, 8):
        found = top_eigenpairs(matrix_operator(symmetric(torch.tensor(spectrum))), k=k, which="magnitude")
        sizes = torch.tensor(spectrum, dtype=torch.float64).abs().sort(descending=True).values[:k]
        assert found.certified.all()
        sorted_sizes = found.values.abs().sort(descending=True).values
        torch.testing.assert_close(sorted_sizes, sizes, rtol=1e-4, atol=1e-8)
        assert torch.equal(found.values, found.values.sort(descending=True).values)


def test_a_short_basis_is_restarted_at_both_ends() -> None:
    spread = torch.cat([-(torch.linspace(0, 1, 100) ** 3), 0.9 * torch.linspace(0, 1, 100) ** 3])
    operator = matrix_operator(symmetric(torch.cat([spread, torch.tensor([-3.0, 2.5, -2.2])])))
    found = top_eigenpairs(operator, k=3, which="magnitude", tol=1e-6, max_basis=12)
    torch.testing.assert_close(found.values, torch.tensor([2.5, -2.2, -3.0]).double(), rtol=1e-5, atol=0)


def test_a_budget_that_ends_early_certifies_nothing() -> None:
    spread = matrix_operator(symmetric(torch.linspace(-1, 1, 300)))
    found = top_eigenpairs(spread, k=2, which="magnitude", max_matvecs=5)
    assert not found.converged
    assert not found.certified.any()


def test_both_ends_are_guarded_beyond_the_smallest_size() -> None:
    goal = Goal(Wanted(either=3), tol=1e-3, size=8, scale=8, eps=1e-16)
    values = torch.tensor([8.0, 4.0, -6.0], dtype=torch.float64)
    assert goal.limits(values) == pytest.approx((-4.02, 4.02))
    low, high = goal.reaches(values)
    torch.testing.assert_close(high, torch.tensor([8.04, 4.02, 6.03], dtype=torch.float64))
    assert torch.equal(low, -high)
    one_end = Goal(Wanted(low=1, high=1), tol=1e-3, size=8, scale=8, eps=1e-16)
    low, high = one_end.reaches(torch.tensor([8.0, -6.0], dtype=torch.float64))
    assert (float(low[0]), float(high[1])) == (-torch.inf, torch.inf)
    assert (float(low[1]), float(high[0])) == pytest.approx((-6.03, 8.04))
    assert goal.most == one_end.most / 2


def test_more_than_there_are_is_refused() -> None:
    operator = matrix_operator(symmetric(torch.ones(4)))
    assert len(top_eigenpairs(operator, k=4, which="magnitude").values) == 4
    with pytest.raises(UserError, match="choose 1 to 4"):
        top_eigenpairs(operator, k=5, which="magnitude")
    with pytest.raises(UserError, match="largest, smallest, both, magnitude"):
        top_eigenpairs(operator, which="LM")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tol", "error", "words"),
    [
        (1e-2, 0.0, "(asked: 1.2e-01)"),
        (1e-6, 1e-3, "(asked: 1.2e-05, the products' error allows 2.0e-03)"),
        (1e-2, 1e-3, "(asked: 6.0e-02)"),  # half of it, for the other half is theirs
        (1e-20, 0.0, "(asked: 1.2e-19, the products' rounding allows 2.7e-14)"),
    ],
)
def test_progress_tells_what_was_asked_from_what_the_products_allow(
    tol: float, error: float, words: str
) -> None:
    value, residual = torch.tensor([12.0], dtype=torch.float64), torch.tensor([1e-3], dtype=torch.float64)
    goal = Goal(Wanted(high=1), tol, size=12.0, scale=12.0, eps=2.22e-16, error=error)
    one = torch.ones(1, 1, dtype=torch.float64)
    found = Ritz(torch.tensor([0]), value, one, residual, goal, inner=0.0)
    assert found.text == f"λ ≈ 12, residuals up to 1.0e-03 {words}"
