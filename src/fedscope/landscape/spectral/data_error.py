"""Errors of eigenvalues over the choice of samples, from the samples' own curvature along each eigenvector.

An eigenvalue of a sample's H has two errors against the population's. It scatters, to first order by
vᵀ(H_i − H)v over samples i, or over batches where these alone are known. And it is biased outward, λ_max
upward: v was chosen to fit the sample. To second order that is Σ_j |v_jᵀ(H_b − H)v|² / (λ − λ_j). The
delete-one-batch jackknife measures the bias, and costs no product (for batches of unequal sizes: Busing,
Meijer and van der Leeden 1999). Within the Krylov space it has Q H_b Qᵀ. To directions outside, H does not
couple v, and a batch does by ‖(1 − P)H_b v‖, estimated by a few random signs; their own curvature counts as
none beside λ. With eigenvalues i^−0.8 they were four fifths of λ_max's bias after 10 steps, a third after 90.

The jackknife takes the bias to fall as 1/N. In a crowd it falls more slowly, as N^(−1/2) at the edge
c(1 + √(n/N))² of the sample spectrum of c·1 (Marchenko and Pastur 1967), where it is up to twice what the
jackknife says; and a Krylov space of few rows hides up to a third of it. Within a crowd the terms of both
neighbours almost cancel, and the jackknife's remainder scatters as much as the value does. So the bias of a
crowded eigenvalue, more than 0.6 times its distance to the next one, is open: from none to 3 times this.

Symbols: B batches of n_b samples, N in all; m rows of the basis, P = QᵀQ; k eigenvalues.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.landscape.loss.checks import slack
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.krylov_basis import Subspace
from fedscope.statistics.intervals import data_stderr, sample_error

_MOST = 3.0  # times the jackknife's, the bias of a crowded eigenvalue
_CROWDED = 0.6  # bias, relative to the distance to the next eigenvalue
SKETCH = 8  # random signs: a squared length is known to √(2/8), over B batches to about √(2/(8B))
_LARGEST = 256  # rows of the projections that are diagonalised for each batch


@dataclass(frozen=True)
class DataErrors:
    """Of k eigenvalues."""

    forms: Tensor | None  # (k, B) float64: vᵀH_b v
    stderr: Tensor  # (k,) float64
    bias: Tensor  # (k,) float64
    dof: Tensor  # (k,) float64: degrees of freedom of ``stderr``
    bias_most: Tensor  # (k,) float64: what the bias may be


def eigenvalue_errors(op: Operator, known: Subspace, positions: Tensor) -> DataErrors:
    """Return the data's errors of eigenvalues of ``known.projected``; NaN with fewer than two batches.

    Args:
        op: the operator; its weights are n_b of the batches.
        known: a Krylov space of it in which they have converged.
        positions: (k,) which they are among all m, ascending.
    """
    weights = op.weights
    if known.batches is None or weights is None or len(weights) < 2:
        missing = torch.full((len(positions),), math.nan, dtype=torch.float64)
        error = missing if op.finite_population else torch.zeros_like(missing)  # of all there is: none
        return DataErrors(None, error, error.clone(), missing, error.clone())
    theta, s = torch.linalg.eigh(known.projected)
    forms = torch.einsum("ik,bij,jk->kb", s[:, positions], known.batches, s[:, positions])
    stderr = torch.tensor([data_stderr(of_pair, weights) for of_pair in forms], dtype=torch.float64)
    kept = theta.abs().argsort(descending=True)[:_LARGEST]
    kept = torch.cat([kept, positions]).unique()  # ascending
    small = s[:, kept].T @ known.batches @ s[:, kept]
    bias = _bias(small, weights, torch.searchsorted(kept, positions))
    if known.beyond is not None:
        coupling = torch.einsum("bmd,mk->bkd", known.beyond, s[:, positions]).norm(dim=2)
        bias += _bias_beyond(coupling, weights, theta[positions])
    factor, dof = op.finite_population, torch.full_like(stderr, len(weights) - 1)
    bias *= factor
    return DataErrors(forms, factor**0.5 * stderr, bias, dof, most_bias(bias, theta, positions))


def most_bias(bias: Tensor, values: Tensor, positions: Tensor) -> Tensor:
    """Return what the biases (k,) of the values at ``positions`` (k,) of ascending ones may be: (k,)."""
    gaps = torch.nn.functional.pad(values.diff(), (1, 1), value=math.inf)
    crowded = bias.abs() > _CROWDED * torch.minimum(gaps[1:], gaps[:-1])[positions]
    return torch.where(crowded, _MOST * bias, bias)


def sample_errors(op: Operator, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the samples' vᵀH_i v (k, N), their means' standard errors (k,) and degrees of freedom (k,).

    None where the operator cannot tell them, or their means are not the eigenvalues: the loss of a batch is
    then no plain mean over samples.

    Args:
        op: the operator.
        values: (k,) eigenvalues.
        vectors: (n, k) eigenvectors.
    """
    found = []
    room = slack(op.dtype) * float(values.abs().max())
    for value, v in zip(values.tolist(), vectors.T, strict=True):
        forms = op.sample_forms(v)
        if forms is None or not abs(float(forms.mean()) - value) <= room:
            return None
        found.append(forms.cpu())
    errors = torch.tensor([sample_error(forms) for forms in found], dtype=torch.float64)
    return torch.stack(found), op.finite_population**0.5 * errors[:, 0], errors[:, 1]


def _bias(batches: Tensor, weights: Sequence[int], positions: Tensor) -> Tensor:
    """Return Σ_b (1 − n_b/N)·(θ without batch b) − (B − 1)·θ, for (B, p, p) parts of the matrix."""
    shares = _shares(weights)
    whole = torch.einsum("b,bij->ij", shares, batches)
    total: Tensor = (1 - len(shares)) * torch.linalg.eigvalsh(whole)[positions]
    for share, part in zip(shares.tolist(), batches, strict=True):
        # (whole − share·part) / (1 − share) is the mean of the others; its factor 1 − share cancels.
        total += torch.linalg.eigvalsh(whole - share * part)[positions]
    return total


def _bias_beyond(coupling: Tensor, weights: Sequence[int], theta: Tensor) -> Tensor:
    """Return what ``coupling`` (B, k), ‖(1 − P)H_b v‖, adds to the jackknife's bias of θ (k,).

    Without batch b the eigenvalue (1 − n_b/N)·θ is coupled by (n_b/N)·‖(1 − P)H_b v‖ to one of 0, and moves
    away from it as that of a 2 × 2 matrix does.
    """
    shares = _shares(weights)[:, None]
    half = (1 - shares) * theta / 2
    moved: Tensor = torch.hypot(half, shares * coupling) - half.abs()
    return (moved * theta.sign()).sum(0)


def _shares(weights: Sequence[int]) -> Tensor:
    counts = torch.tensor(weights, dtype=torch.float64)
    return counts / counts.sum()
