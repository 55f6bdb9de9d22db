"""What the clients' bases do between the stages of a comparison."""

from functools import partial

import pytest
import torch
from torch import Tensor

from fedscope.landscape import LambdaOperator, cross_client, deflated_diagonal
from fedscope.landscape.heterogeneity.client_diagonals import ClientDiagonals
from fedscope.landscape.heterogeneity.cross_client import _times
from fedscope.landscape.heterogeneity.similarity import relative_reach
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.spectral.deflation import growing
from tests.landscape.cases import matrix_operator, symmetric

N = 60


def _matrices(values: Tensor, clients: int = 3) -> list[Tensor]:
    """Matrices of these eigenvalues with vectors of their own."""
    return [symmetric(values * (1 + client / 4), seed=client) for client in range(clients)]


def _operators(matrices: list[Tensor]) -> list[LambdaOperator]:
    return [matrix_operator(matrix) for matrix in matrices]


def _basis(matrix: Tensor, rows: int) -> Subspace:
    operator = matrix_operator(matrix)
    return growing(operator, None, torch.Generator().manual_seed(9), rows)(rows)


def test_a_basis_of_the_whole_space_makes_all_earlier_probes_exact() -> None:
    """The probes were taken beside 8 rows; the rows that come later need no product with them."""
    matrices = _matrices(torch.linspace(-4, 5, N))
    clients = ClientDiagonals(3, 4, deflated_diagonal)
    clients.add(_operators(matrices), 16)
    clients.add(_operators(matrices), 8)
    noisy = [groups.clone() for groups in clients.parameter]
    before = clients.matvecs
    while clients.grow(_operators(matrices), 1e12):
        pass
    assert clients.matvecs == before + 3 * (N - 8)
    assert clients.deflated == N
    for matrix, groups, was, traces in zip(matrices, clients.parameter, noisy, clients.tensor, strict=True):
        truth = matrix.diagonal().expand(4, N)
        torch.testing.assert_close(groups, truth, rtol=0, atol=1e-9)
        torch.testing.assert_close(traces, truth.sum(1, keepdim=True), rtol=0, atol=1e-8)
        assert float((was - truth).abs().max()) > 0.1


def test_a_basis_stays_where_rows_cost_more_than_they_save() -> None:
    matrices = _matrices(torch.linspace(-4, 5, N))
    clients = ClientDiagonals(3, 4, deflated_diagonal)
    clients.add(_operators(matrices), 16)
    before = [groups.clone() for groups in clients.parameter]
    assert not clients.grow(_operators(matrices), 1.0)
    assert clients.matvecs == 3 * (16 + 8)
    assert all(map(torch.equal, before, clients.parameter))


@pytest.mark.parametrize(
    "values",
    [torch.linspace(1, 9, 400), 300 / torch.arange(1, 401)],
    ids=["flat", "steep"],
)
def test_kept_bases_reach_the_same_errors_with_fewer_products(values: Tensor) -> None:
    compared = partial(cross_client, _operators(_matrices(values)), rtol=0.03, max_probes=10**4, seed=1)
    kept, anew = compared(), compared(basis_memory=0)
    truth = torch.stack([matrix.diagonal() for matrix in _matrices(values)]).norm(dim=1)
    gaps = (truth[:, None] - truth).square().sum() / 6
    for found in (kept, anew):
        assert found.converged
        assert relative_reach(found.H_N["parameter"]) <= 0.03
        assert found.H_N["parameter"].value == pytest.approx(float(gaps), rel=0.15)
    assert kept.matvecs < 0.7 * anew.matvecs


def test_a_basis_that_does_not_fit_is_made_anew_in_every_stage() -> None:
    matrices, row = _matrices(torch.linspace(1, 9, N), 2), N * 8
    clients = ClientDiagonals(3, 4, deflated_diagonal, memory=10 * row)
    clients.add(_operators(matrices), 16)  # 8 rows of one client, not of both
    clients.add(_operators(matrices), 8)
    assert clients.matvecs == (16 + 8) + 8 + (16 + 8) + (8 + 4)
    assert not clients.grow(_operators(matrices[:1]), 1e12)  # half of 10 rows is less than its 8


def test_a_basis_that_is_given_costs_nothing() -> None:
    matrices = _matrices(torch.linspace(1, 9, N), 2)
    bases = [_basis(matrix, 12) for matrix in matrices]
    found = cross_client(_operators(matrices), probes=16, groups=4, known=[bases[0], None])
    plain = cross_client(_operators(matrices), probes=16, groups=4)
    assert found.matvecs == 16 + (16 + 8)
    assert plain.matvecs == 2 * (16 + 8)
    assert found.squared_norms["parameter"][1] == plain.squared_norms["parameter"][1]  # the same probes


def test_near_the_noise_errors_fall_with_the_probes_and_not_with_their_root() -> None:
    assert _times(1.5, 0.0) == pytest.approx(1.1 * 1.5**2)
    assert _times(1.5, float("inf")) == pytest.approx(1.1 * 1.5)
    between = _times(1.5, 2.0) / 1.1  # half of the variance in 1/M, half in 1/M²
    assert 0.5 / between + 0.5 / between**2 == pytest.approx(1.5**-2)
    assert _times(float("inf"), 1.0) == 4
