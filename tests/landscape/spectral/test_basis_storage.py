"""Eigenvalues, traces and densities from bases that are kept in a file."""

import tempfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedscope.landscape import spectral_density, top_eigenpairs, trace
from fedscope.landscape.operators.basis.krylov_basis import Remainder
from tests.landscape.cases import Case, convnet

FOLDERS = [None, Path(tempfile.gettempdir())]


@pytest.fixture(scope="module")
def case() -> Case:
    return convnet()


@pytest.mark.parametrize("k", [1, 3])
def test_a_file_changes_no_digit(case: Case, k: int) -> None:
    ours, theirs = (top_eigenpairs(case.operator, k=k, max_basis=12, basis_folder=each) for each in FOLDERS)
    assert torch.equal(ours.values, theirs.values)
    assert torch.equal(ours.vectors, theirs.vectors)
    assert torch.equal(ours.residuals, theirs.residuals)
    assert torch.equal(ours.bias_data, theirs.bias_data)
    totals = [trace(case.operator, known=found.subspace, rtol=0.1) for found in (ours, theirs)]
    assert totals[0] == totals[1]
    densities = [spectral_density(case.operator, steps=9, basis_folder=each) for each in FOLDERS]
    assert torch.equal(densities[0].nodes, densities[1].nodes)


def test_the_remainder_of_a_basis_in_a_file(case: Case) -> None:
    dense = case.dense()
    known = top_eigenpairs(case.operator, basis_folder=FOLDERS[1]).subspace
    assert known is not None
    Q = known.basis
    torch.testing.assert_close(Q @ dense @ Q.T, known.projected, rtol=0, atol=1e-6 * float(dense.norm()))
    outside = torch.eye(len(dense), dtype=torch.float64) - Q.T @ Q
    v = torch.randn(len(dense), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    remainder = Remainder(case.operator, known.rows)
    torch.testing.assert_close(remainder.matvec(v), outside @ dense @ outside @ v)
    exact, found = float(dense.trace()), trace(case.operator, known=known, rtol=0.02)
    assert abs(found.value - exact) < 4 * found.stderr_probe + 1e-6 * float(dense.norm())
    product = _known_part(known.basis, known.projected, known.outside, known.coupling)
    torch.testing.assert_close(known.known_products(v[None])[0], product @ v)
    torch.testing.assert_close(known.diagonal(), product.diagonal())


def _known_part(Q: Tensor, T: Tensor, q: Tensor, b: Tensor) -> Tensor:
    coupled = torch.outer(Q.T @ b, q)
    part: Tensor = Q.T @ T @ Q + coupled + coupled.T
    return part
