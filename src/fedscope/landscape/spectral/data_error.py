"""Errors of eigenvalues over the choice of samples, from the samples' own curvature along each eigenvector.

An eigenvalue λ of a sample's H has two errors against the population's. It scatters, to first order by
vᵀ(H_i − H)v over samples i, or over batches where these alone are known. And it is biased outward, λ_max
upward: v was chosen to fit the sample. To second order that is Σ_j |v_jᵀ(H_b − H)v|² / (λ − λ_j).

Batch b's own form is free of that choice at the eigenvector v_(−b) of the other batches. The mean of
v_(−b)ᵀ H_b v_(−b), the cross-fitted value, is on average no larger than the population's λ_max, as λ is no
smaller: the truth lies between. To second order it is half-way. In a crowd λ is too high by more than the
cross-fitted value is too low, since a wrong eigenvector costs little there. Which part of the gap is bias is
told by simulation: A has the cross-fitted values as its spectrum, and √(B/(B − 1)) Σ_b ε_b (n_b/N)(H_b − H)
with normal ε_b scatters as the mean of B batches does (the wild bootstrap: Wu 1986). The largest eigenvalue
of a simulated matrix, less A's, is bias; A's, less A's form at its eigenvector, is the loss.

Where few samples carry much of λ, v fits these, and the spread at v exaggerates: without them another
direction takes their place. The delete-one-batch jackknife sees that (for batches of unequal sizes: Busing,
Meijer and van der Leeden 1999), and standard errors are taken down by what it says.

Within the Krylov space H_b is Q H_b Qᵀ. To directions outside, H does not couple v, and a batch does by
(1 − P)H_b v, of which a few random signs are known. They stand for as many coordinates, with the curvature of
the newest row of the basis; where that is not small beside λ, their own deviations, which are not known,
leave the bias uncertain. With eigenvalues i^−0.8 these were four fifths of λ_max's bias after 10 steps, a
third after 90. Nothing of this costs a product.

Symbols: B batches of n_b samples, N in all; m rows of the basis, P = QᵀQ; d signs; p coordinates; k values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedscope.landscape.loss.checks import slack
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.spectral.spectral_results import Eigenpairs
from fedscope.statistics.standard_errors import data_stderr, deleted, sample_error

SKETCH = 8  # random signs: a squared length is known to √(2/8), over B batches to about √(2/(8B))
_SIMULATED = 24  # pairs ±ε
_LARGEST = 256  # rows of the basis that are diagonalised for each batch


@dataclass(frozen=True)
class DataErrors:
    """Of k eigenvalues."""

    forms: Tensor | None  # (k, B) float64: vᵀH_b v
    stderr: Tensor  # (k,) float64
    bias: Tensor  # (k,) float64
    dof: Tensor  # (k,) float64: degrees of freedom of ``stderr``
    stderr_bias: Tensor  # (k,) float64


def eigenvalue_errors(op: Operator, known: Subspace, positions: Tensor) -> DataErrors:
    """Return the data's errors of converged eigenvalues of ``known.projected``; NaN without two batches.

    ``positions`` (k,) are theirs among all m, ascending.
    """
    weights = op.weights
    if known.batches is None or weights is None or len(weights) < 2:
        missing = torch.full((len(positions),), math.nan, dtype=torch.float64)
        error = missing if op.finite_population else torch.zeros_like(missing)  # of all there is: none
        return DataErrors(None, error, error.clone(), missing, error.clone())
    theta, s = torch.linalg.eigh(known.projected)
    forms = torch.einsum("ik,bij,jk->kb", s[:, positions], known.batches, s[:, positions])
    kept = theta.abs().argsort(descending=True)[:_LARGEST]
    kept = torch.cat([kept, positions]).unique()
    outside = float(known.projected[-1, -1]) if bool(known.outside.any()) else 0.0
    values, parts = _ranked(theta[kept], s[:, kept], known, outside)
    places = torch.searchsorted(values, theta[positions])
    shares = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    spread, bias, uncertain = _across_batches(parts, shares, places, outside)
    factor, dof = op.finite_population, torch.full_like(spread, len(weights) - 1)
    stderr = torch.minimum(_first_order(forms, weights), spread)
    return DataErrors(forms, factor**0.5 * stderr, factor * bias, dof, factor * uncertain)


def told_by_sample(op: Operator, pairs: Eigenpairs) -> Eigenpairs:
    """Return eigenpairs with the samples' vᵀH_i v and errors from these, at about two products for each pair.

    As they are where the operator cannot tell them, or their means are not the eigenvalues: the loss of a
    batch is then no plain mean over samples.
    """
    found = []
    room = slack(op.dtype) * float(pairs.values.abs().max())
    alone = pairs.forms is not None and set(op.weights or ()) == {1}  # each batch is a sample
    for i, (value, v) in enumerate(zip(pairs.values.tolist(), pairs.vectors.T, strict=True)):
        forms_of = pairs.forms[i] if alone and pairs.forms is not None else op.sample_forms(v)
        if forms_of is None or not abs(float(forms_of.mean()) - value) <= room:
            return pairs
        found.append(forms_of.cpu())
    errors = torch.tensor([sample_error(one) for one in found], dtype=torch.float64)
    stderr = op.finite_population**0.5 * errors[:, 0]
    if pairs.forms is not None and op.weights and op.finite_population:
        steadier = pairs.stderr_data / (op.finite_population**0.5 * _first_order(pairs.forms, op.weights))
        stderr *= steadier.nan_to_num(1.0)  # batches without any spread
    return replace(pairs, samples=torch.stack(found), stderr_data=stderr, dof_data=errors[:, 1])


def _first_order(forms: Tensor, weights: Sequence[int]) -> Tensor:
    return torch.tensor([data_stderr(of_pair, weights) for of_pair in forms], dtype=torch.float64)


def _ranked(theta: Tensor, s: Tensor, known: Subspace, outside: float) -> tuple[Tensor, Tensor]:
    """Return the diagonal of H, ascending (p,), and H_b (B, p, p), in Ritz vectors, columns of s, and signs.

    The coordinates that the signs stand for have the curvature ``outside``.
    """
    assert known.batches is not None
    parts = s.T @ known.batches @ s
    if known.beyond is None:
        return theta, parts
    beside = s.T @ known.beyond
    corner = outside * torch.eye(beside.shape[2], dtype=theta.dtype)
    bordered = torch.cat([beside.mT, corner.expand(len(parts), -1, -1)], 2)
    parts = torch.cat([torch.cat([parts, beside], 2), bordered], 1)
    values, order = torch.cat([theta, corner.diag()]).sort(stable=True)
    return values, parts[:, order][:, :, order]


def _across_batches(
    parts: Tensor, shares: Tensor, places: Tensor, outside: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the jackknife's error (k,) of the mean's eigenvalues at ``places``, their bias and its error.

    ``outside``: the curvature of directions whose own deviations are not known.
    """
    whole = torch.einsum("b,bij->ij", shares, parts)
    odds = (shares / (1 - shares))[:, None, None]
    left_out, vectors = torch.linalg.eigh(whole + odds * (whole - parts))  # the means of the others
    fitted = torch.einsum("b,bik,bij,bjk->k", shares, vectors, parts, vectors)
    values = torch.linalg.eigvalsh(whole)
    spread = [float(deleted(values[k], left_out[:, k], shares)[1]) for k in places.tolist()]
    noise = _noise(parts - whole, shares)
    gap = values - fitted
    bias = _bias_share(fitted, noise) * gap
    # In one direction it is known to √(2/(B − 1)) of itself, as χ² with B − 1 degrees of freedom is.
    known = (bias.abs() + 2 * _cancelled(values, noise)) * math.sqrt(2 / (len(shares) - 1))
    beside = (outside / values).clamp(0, 1).nan_to_num().square() * gap
    uncertain = torch.hypot(known, beside)
    return torch.tensor(spread, dtype=torch.float64).sqrt(), bias[places], uncertain[places]


def _cancelled(values: Tensor, noise: Tensor) -> Tensor:
    """Return what pushes each of ascending values (p,) from below and from above, the smaller of the two.

    A pair is pushed apart as the eigenvalues of a 2 × 2 matrix with the coupling of ``noise`` (R, p, p) are.
    """
    half = (values[:, None] - values).abs() / 2
    pushed = torch.hypot(half, noise.square().mean(0).sqrt()) - half
    return torch.minimum(pushed.tril(-1).sum(1), pushed.triu(1).sum(1))


def _noise(deviations: Tensor, shares: Tensor) -> Tensor:
    """Return simulated deviations of the mean of B parts from its expectation: (2·``_SIMULATED``, p, p)."""
    count = len(shares)
    draws = torch.randn(_SIMULATED, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.einsum("rb,bij->rij", draws * shares * math.sqrt(count / (count - 1)), deviations)
    return torch.cat([noise, -noise])


def _bias_share(fitted: Tensor, noise: Tensor) -> Tensor:
    """Return which part of the gap between λ and the cross-fitted value is bias, (p,): ½ to 1."""
    values, vectors = torch.linalg.eigh(fitted.diag() + noise)
    true = fitted.sort().values
    bias = values.mean(0) - true
    loss = true - (vectors.square() * fitted[:, None]).sum(1).mean(0)
    share: Tensor = (bias / (bias + loss)).nan_to_num(0.5).clamp(0.5, 1)
    return share
