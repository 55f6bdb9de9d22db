"""An operator of one's own with batches: dense matrices, one a batch, whose mean and spread are known."""

import math

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import BatchMean, diagonal, orthogonal, top_eigenpairs, trace
from fedscope.landscape.heterogeneity.cross_client import cross_client
from tests.landscape.cases import symmetric

N, WEIGHTS = 6, (2, 2, 2, 2, 2)


class Matrices(BatchMean):
    """The mean of dense matrices (B, n, n)."""

    def __init__(self, matrices: Tensor, weights: tuple[int, ...] = WEIGHTS, population: int | None = None):
        super().__init__(len(matrices[0]), weights=weights, population=population)
        self.matrices = matrices

    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        return rows @ self.matrices[b]


def _matrices(seed: int = 0) -> Tensor:
    """Five matrices around one with eigenvalues 10, 5, 4, 3, 2, 1."""
    noise = torch.randn(5, N, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    whole = symmetric(torch.tensor([10.0, 5, 4, 3, 2, 1]))
    return whole + 0.05 * (noise + noise.mT)


def test_it_is_the_weighted_mean_of_the_matrices() -> None:
    matrices, weights = _matrices(), (1, 2, 3, 4, 5)
    op = Matrices(matrices, weights)
    shares = torch.tensor(weights, dtype=torch.float64) / 15
    torch.testing.assert_close(op.to_dense(), torch.einsum("b,bij->ij", shares, matrices))
    v = torch.arange(float(N), dtype=torch.float64)
    torch.testing.assert_close(op.product(v).forms, torch.stack([v @ A @ v for A in matrices]))


def test_the_trace_has_the_error_over_batches() -> None:
    matrices = _matrices()
    found = trace(Matrices(matrices), probes=N, sampler=orthogonal)
    traces = matrices.diagonal(dim1=1, dim2=2).sum(1)
    assert found.value == pytest.approx(float(traces.mean()))
    assert found.stderr_probe == 0
    assert found.stderr_data == pytest.approx(float(traces.std()) / math.sqrt(5))
    assert found.dof_data == 4
    half = trace(Matrices(matrices, population=20), probes=N, sampler=orthogonal)
    assert half.stderr_data == pytest.approx(found.stderr_data / math.sqrt(2))


def test_eigenvalues_have_the_error_over_batches() -> None:
    matrices = _matrices()
    found = top_eigenpairs(Matrices(matrices), k=2, tol=1e-10)
    values, vectors = torch.linalg.eigh(matrices.mean(0))
    for i in (0, 1):
        v = vectors[:, -1 - i]
        forms = torch.stack([v @ A @ v for A in matrices])
        assert float(found.values[i]) == pytest.approx(float(values[-1 - i]))
        assert float(found.stderr_data[i]) == pytest.approx(float(forms.std()) / math.sqrt(5), rel=1e-2)


def test_clients_of_ones_own_are_compared_with_errors_over_their_samples() -> None:
    clients = [Matrices(_matrices(seed)) for seed in (1, 2, 3)]
    found = cross_client(clients, probes=16, sample_probes=4)
    assert found.H_N_population["parameter"].stderr > 0
    assert diagonal(clients[0], probes=16).trace.stderr_data > 0


def test_a_batch_without_samples_is_refused() -> None:
    for weights in ((), (2, 0)):
        with pytest.raises(UserError, match="none empty"):
            Matrices(_matrices(), weights)


def test_products_of_another_shape_are_a_fault_that_is_named() -> None:
    class Flat(Matrices):
        def batch_products(self, b: int, rows: Tensor) -> Tensor:
            return super().batch_products(b, rows)[0]

    with pytest.raises(ValueError, match=r"of batch 0 have shape \(6,\); expected \(1, 6\)"):
        Flat(_matrices()).matvec(torch.ones(N, dtype=torch.float64))
