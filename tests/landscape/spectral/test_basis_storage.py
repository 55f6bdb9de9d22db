"""Eigenvalues, traces and densities from bases that are kept in a file or in half precision."""

import pytest
import torch
from torch import Tensor

from fedscope.landscape import spectral_density, top_eigenpairs, trace
from fedscope.landscape.operators.basis.storage import BasisStorage
from fedscope.landscape.operators.krylov_basis import Remainder
from fedscope.landscape.spectral.krylov.ritz import Which
from tests.landscape.cases import Case, convnet, matrix_operator, symmetric

FULL = [BasisStorage(), BasisStorage(place="file")]
HALF = [BasisStorage(half=True), BasisStorage(place="file", half=True)]


@pytest.fixture(scope="module")
def case() -> Case:
    return convnet()


@pytest.mark.parametrize("k", [1, 3])
def test_a_file_changes_no_digit(case: Case, k: int) -> None:
    ours, theirs = (top_eigenpairs(case.operator, k=k, max_basis=12, storage=each) for each in FULL)
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.vectors, theirs.vectors)
    assert torch.equal(ours.residuals, theirs.residuals)
    assert torch.equal(ours.bias_data, theirs.bias_data)
    totals = [trace(case.operator, known=found.subspace, rtol=0.1) for found in (ours, theirs)]
    assert totals[0] == totals[1]
    densities = [spectral_density(case.operator, steps=9, storage=each) for each in FULL]
    assert torch.equal(densities[0].nodes, densities[1].nodes)


@pytest.mark.parametrize("storage", HALF, ids=str)
@pytest.mark.parametrize(
    ("k", "which", "rows"),
    [(1, "largest", None), (3, "largest", None), (2, "both", None), (2, "largest", 9)],
)
def test_half_precision_certifies_values_of_the_dense_matrix(
    case: Case, storage: BasisStorage, k: int, which: Which, rows: int | None
) -> None:
    dense = case.dense()
    exact = torch.linalg.eigvalsh(dense)
    found = top_eigenpairs(case.operator, k=k, which=which, max_basis=rows, storage=storage, seed=1)
    values, vectors = found.values, found.vectors
    errors = (exact[:, None] - values).abs().min(0).values
    assert bool((errors <= found.residuals).all())
    true = (dense @ vectors - vectors * values).norm(dim=0) / vectors.norm(dim=0)
    assert bool((true <= found.residuals * (1 + 1e-9)).all())
    assert bool((found.residuals <= 1e-2 * exact.abs().max()).all())
    for position in found.certified.nonzero().flatten().tolist():
        ith = exact.flip(0)[position] if which == "largest" or position < k else exact[2 * k - 1 - position]
        assert abs(float(ith - values[position])) <= float(found.residuals[position])
    if k == 1:
        assert found.converged
        assert bool(found.certified.all())


@pytest.mark.parametrize("seed", range(8))
def test_the_certificate_in_half_precision_contains_the_exact_value(seed: int) -> None:
    """float32 products of matrices with a crowded top: 8 matrices, three tolerances each."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.cat([torch.tensor([3.0, 2.9, 2.0]), torch.randn(297, generator=generator)])
    matrix = symmetric(spectrum)
    exact = float(torch.linalg.eigvalsh(matrix)[-1])
    operator = matrix_operator(matrix.float())
    for tol in (1e-2, 1e-3, 1e-6):
        found = top_eigenpairs(operator, tol=tol, seed=seed, storage=BasisStorage(half=True), max_matvecs=200)
        assert abs(float(found.values[0]) - exact) <= float(found.residuals[0])
        assert float(found.residuals[0]) < 2e-3 * exact or tol == 1e-2
        assert found.converged or tol == 1e-6


def test_rounding_ends_the_search_and_is_told(case: Case) -> None:
    """A tolerance below what half precision allows takes no further products, and says it is not reached."""
    full = top_eigenpairs(case.operator, tol=1e-6)
    half = top_eigenpairs(case.operator, tol=1e-6, storage=BasisStorage(half=True))
    assert full.converged
    assert not half.converged
    assert not bool(half.certified.any())
    assert half.matvecs <= full.matvecs + 4


def test_the_remainder_of_a_basis_in_half_precision(case: Case) -> None:
    dense = case.dense()
    known = top_eigenpairs(case.operator, storage=BasisStorage(half=True)).subspace
    assert known is not None
    Q = known.basis
    torch.testing.assert_close(Q @ dense @ Q.T, known.projected, rtol=0, atol=1e-3 * float(dense.norm()))
    outside = torch.eye(len(dense), dtype=torch.float64) - Q.T @ Q
    v = torch.randn(len(dense), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    remainder = Remainder(case.operator, known.rows)
    torch.testing.assert_close(remainder.matvec(v), outside @ dense @ outside @ v)
    exact, found = float(dense.trace()), trace(case.operator, known=known, rtol=0.02)
    assert abs(found.value - exact) < 4 * found.stderr_probe + 1e-3 * float(dense.norm())
    product = _known_part(known.basis, known.projected, known.outside, known.coupling)
    torch.testing.assert_close(known.known_products(v[None])[0], product @ v)
    torch.testing.assert_close(known.diagonal(), product.diagonal())


def _known_part(Q: Tensor, T: Tensor, q: Tensor, b: Tensor) -> Tensor:
    coupled = torch.outer(Q.T @ b, q)
    part: Tensor = Q.T @ T @ Q + coupled + coupled.T
    return part
