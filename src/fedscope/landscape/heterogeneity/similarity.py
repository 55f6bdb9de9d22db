"""H_N and H_D of several clients, with errors, from independent estimates of their diagonals.

For the diagonals D_k: H_N^{kj} = (‖D_k‖ − ‖D_j‖)² and H_D^{kj} = ⟨D_k, D_j⟩ / (‖D_k‖·‖D_j‖)
(Mendieta et al. 2022, section 3.4, Eqs. 3–4).

The squared norm of an estimate D̂ exceeds ‖D‖² by the probes' variance, which here is seldom small. So the
probes of each client form G groups with means g^a, and inner products use different groups only:

    I_kj = Σ_{a≠b} ⟨g_k^a, g_j^b⟩ / (G (G − 1)),   E[I_kj] = ⟨D_k, D_j⟩.

What is not linear in the I_kj (norms, cosines) is corrected to first order by the jackknife over groups,
whose covariance C of the norms ν̂ also says how far H_N is raised by squaring noise. Over distinct pairs

    H_N = 2/(K − 1) · ‖x‖², x = ν − ν̄;   θ̂ = ‖x̂‖² − tr C,   Var θ̂ = 4 xᵀCx + 2 tr C²,

a variance that grows with the value, so the interval of H_N is the set of values that the estimate does not
contradict, each judged by its own variance (Wilson 1927), and not symmetric. H_N^{kj} is at most the larger
of ‖D_k‖² and ‖D_j‖², so an interval from 0 to the upper end of theirs excludes nothing.

Scale-free H_N is the same of the log-norms' differences (ours): with x = ln ‖D_k‖ − ln ‖D_j‖

    H̃_N^{kj} = (‖D_k‖ − ‖D_j‖)² / (‖D_k‖·‖D_j‖) = 4 sinh²(x/2),

which no common factor of the diagonals changes. Squaring noise of variance v adds v·cosh x to it.

Symbols: K clients, G groups, n parameters; the Gram matrix is (K, G, K, G).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fedscope.choices import Pairs
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.statistics.standard_errors import jackknife_variance

_CHUNK = 1 << 22  # float64 numbers converted at a time


@dataclass(frozen=True)
class DiagonalSimilarity:
    """H_N and H_D of one kind of diagonal."""

    H_N: Estimate
    H_N_scale_free: Estimate
    H_D: Estimate
    H_N_matrix: Tensor  # (K, K) float64, as estimated: noise may carry entries below 0
    H_D_matrix: Tensor  # (K, K) float64, as estimated: noise may carry entries beyond ±1
    H_N_resolved: Tensor  # (K, K) bool
    H_D_resolved: Tensor  # (K, K) bool
    squared_norms: tuple[Estimate, ...]  # K: ‖D_k‖²
    inner: Tensor  # (K, K) float64: I
    norms: Tensor  # (K,) float64: ‖D_k‖
    spread: Tensor  # (K, K) float64: variances of the errors of the norms' differences
    logs: Tensor  # (K,) float64: ln ‖D_k‖
    logs_spread: Tensor  # (K, K) float64: of the logs' differences


def compare(rows: list[Tensor], pairs: Pairs, *, sure: bool = True) -> DiagonalSimilarity:
    """Compare K clients by their (G, n) means over groups of probes that all clients share.

    One group is taken as exact, or without an error known if not ``sure``. Equal clients give exactly
    H_N = 0 and H_D = 1. Where a client's I_kk, or that of a leave-one-out set, is not positive, its norm is
    below the noise: its pairs are NaN, and so are the averages.
    """
    same_as = first_equal(rows)
    chosen = sorted(set(same_as))
    place = torch.tensor([chosen.index(j) for j in same_as])  # of a client's numbers; equal ones share it

    def of_pairs(numbers: Tensor) -> Tensor:
        return numbers[..., place, :][..., place]

    gram = _gram(rows, chosen)
    groups, one_each = gram.shape[1], _inner(gram)
    inner = of_pairs(one_each)
    if groups == 1:
        return _plain(inner, pairs, 0.0 if sure else math.nan)
    norms, cosines = relations(one_each)
    left = torch.stack([_inner(gram[:, kept][..., kept]) for kept in _all_but_one(groups)])
    left_norms, left_cosines = relations(left)
    logs = (groups * norms.log() - (groups - 1) * left_norms.log().mean(0))[place]
    norms = (groups * norms - (groups - 1) * left_norms.mean(0))[place]
    cosines = of_pairs(groups * cosines - (groups - 1) * left_cosines.mean(0))
    spread, logs_spread = (of_pairs(_jackknife_spread(one)) for one in (left_norms, left_norms.log()))
    gaps, dof = norms[:, None] - norms, groups - 1
    square_errors = jackknife_variance(left.diagonal(dim1=1, dim2=2)).sqrt()
    squared_norms = _squared_norms(inner.diagonal(), square_errors[place], dof)
    most = _most_of_pairs(squared_norms)
    cosine_errors = of_pairs(jackknife_variance(left_cosines).sqrt())
    average_error = jackknife_variance(average(of_pairs(left_cosines), pairs)).sqrt()
    return DiagonalSimilarity(
        H_N=mean_gap(squared, gaps, spread, [(spread, dof)], pairs, float(most.max())),
        H_N_scale_free=mean_gap(relative, logs[:, None] - logs, logs_spread, [(logs_spread, dof)], pairs),
        H_D=cosine_estimate(float(average(cosines, pairs)), float(average_error), dof),
        H_N_matrix=gaps**2 - spread,
        H_D_matrix=cosines,
        H_N_resolved=_resolved(partial(_squared_gap, dof=dof), gaps, spread, most),
        H_D_resolved=_resolved(partial(cosine_estimate, dof=dof), cosines, cosine_errors),
        squared_norms=squared_norms,
        inner=inner,
        norms=norms,
        spread=spread,
        logs=logs,
        logs_spread=logs_spread,
    )


def relative_reach(estimate: Estimate) -> float:
    """Return the half-width of the 95 % interval relative to the value; infinite where there is none."""
    low, high = estimate.interval()
    reach = (high - low) / 2
    if reach == 0:
        return 0.0
    return reach / abs(estimate.value) if estimate.value and math.isfinite(reach) else math.inf


def _plain(inner: Tensor, pairs: Pairs, stderr: float) -> DiagonalSimilarity:
    """Compare diagonals that are taken as they are, all with the same error: 0, or NaN for one not known."""
    (norms, cosines), squares = relations(inner), inner.diagonal()
    errors = torch.full_like(cosines, stderr)
    squared_norms = _squared_norms(squares, torch.full_like(squares, stderr), math.inf)
    most = _most_of_pairs(squared_norms)
    gaps, logs = (norms[:, None] - norms) ** 2, norms.log()
    relative_gaps, *_ = relative(logs[:, None] - logs)
    spread = torch.full_like(inner, stderr**2)
    return DiagonalSimilarity(
        H_N=Estimate(float(average(gaps, pairs)), stderr, low=0, high=float(most.max())),
        H_N_scale_free=Estimate(float(average(relative_gaps, pairs)), stderr, low=0),
        H_D=cosine_estimate(float(average(cosines, pairs)), stderr, math.inf),
        H_N_matrix=gaps,
        H_D_matrix=cosines,
        H_N_resolved=_resolved(lambda value, most: Estimate(value, stderr, low=0, high=most), gaps, most),
        H_D_resolved=_resolved(partial(cosine_estimate, dof=math.inf), cosines, errors),
        squared_norms=squared_norms,
        inner=inner,
        norms=norms,
        spread=spread,
        logs=logs,
        logs_spread=spread,
    )


def _squared_norms(values: Tensor, stderrs: Tensor, dof: float) -> tuple[Estimate, ...]:
    pairs = zip(values.tolist(), stderrs.tolist(), strict=True)
    return tuple(Estimate(value, stderr, dof, low=0) for value, stderr in pairs)


def _most_of_pairs(squared_norms: tuple[Estimate, ...]) -> Tensor:
    """Return what each pair's H_N (K, K) is at most: the larger of the upper ends of ‖D_k‖² and ‖D_j‖²."""
    ends = torch.tensor([norm.interval()[1] for norm in squared_norms], dtype=torch.float64)
    ends = ends.nan_to_num(nan=math.inf)
    return torch.maximum(ends[:, None], ends)


def cosine_estimate(value: float, stderr: float, dof: float) -> Estimate:
    return Estimate(value, stderr, dof, low=-1, high=1)


def _squared_gap(gap: float, variance: float, most: float, dof: int) -> Estimate:
    value = gap**2 - variance
    error = math.sqrt(4 * variance * max(value, 0.0) + 2 * variance**2)
    return Estimate(value, error, dof, slope=4 * variance, low=0, high=most)


def _resolved(estimate: Callable[..., Estimate], *matrices: Tensor) -> Tensor:
    rows = zip(*(matrix.tolist() for matrix in matrices), strict=True)
    return torch.tensor([[estimate(*pair).resolved for pair in zip(*row, strict=True)] for row in rows])


def squared(gaps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x² of differences x, with its first two derivatives: H_N of the norms' differences."""
    return gaps**2, 2 * gaps, torch.full_like(gaps, 2)


def relative(gaps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 4 sinh² x/2, with its first two derivatives: scale-free H_N of the log-norms' differences."""
    return 4 * (gaps / 2).sinh() ** 2, 2 * gaps.sinh(), 2 * gaps.cosh()


def mean_gap(
    curve: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    gaps: Tensor,
    spread: Tensor,
    errors: Sequence[tuple[Tensor, float]],
    pairs: Pairs,
    most: float = math.inf,
) -> Estimate:
    """Return the mean over pairs of a ``curve`` of differences x_k − x_j (K, K), with its error.

    ``spread`` has the variances (K, K) of their errors, without bias: noise may carry these below 0.
    ``errors`` are of what the differences' errors are sums: variances (K, K), none below 0, and their degrees
    of freedom; a single one comes from a sample covariance of the x.
    """
    clients = len(gaps)
    value, rise, bend = curve(gaps)
    of_pair = 2 / (clients * (clients - 1) if pairs == "distinct" else clients**2)
    gradient, pull = of_pair * rise.sum(1), of_pair * bend.clone().fill_diagonal_(0)
    hessian = pull.sum(1).diag() - pull
    center = torch.eye(clients, dtype=torch.float64) - 1 / clients
    parts = [(-center @ one @ center / 2, dof) for one, dof in errors]  # zero where all clients are equal
    C = torch.stack([one for one, _ in parts]).sum(0)
    raw, unbiased = float(average(value, pairs)), float(average(value - bend * spread / 2, pairs))
    slope = max(0.0, float(gradient @ C @ gradient)) / raw if raw > 0 else 0.0
    square = (hessian @ C @ hessian @ C).trace()
    floor = _square_trace(hessian @ C, parts[0][1]) if len(parts) == 1 else float(square)
    stderr = math.sqrt(slope * max(unbiased, 0.0) + max(0.0, floor) / 2)
    return Estimate(unbiased, stderr, min(dof for _, dof in parts), slope, low=0, high=most)


def _square_trace(HC: Tensor, dof: float) -> float:
    """Return tr (HΣ)², unbiased, for a sample covariance C of Σ with ``dof`` degrees of freedom (Wishart)."""
    trace, squares = float(HC.trace()), float((HC @ HC).trace())
    unbiased = dof**2 / ((dof - 1) * (dof + 2)) * (squares - trace**2 / dof)
    return max(unbiased, trace**2 / len(HC))


def _jackknife_spread(left_out: Tensor) -> Tensor:
    gaps = left_out[:, :, None] - left_out[:, None]
    return jackknife_variance(gaps)


def _all_but_one(groups: int) -> list[list[int]]:
    return [[a for a in range(groups) if a != g] for g in range(groups)]


def first_equal(rows: Sequence[Tensor]) -> list[int]:
    """Return for each client the first one of the same numbers: itself, or an earlier one."""
    return [
        next(j for j, other in enumerate(rows) if other is row or torch.equal(other, row)) for row in rows
    ]


def _gram(rows: list[Tensor], chosen: list[int]) -> Tensor:
    groups, n = rows[0].shape
    size = len(chosen) * groups
    gram = torch.zeros(size, size, dtype=torch.float64)
    width = max(1, _CHUNK // size)
    for begin in range(0, n, width):
        piece = torch.cat([rows[j][:, begin : begin + width] for j in chosen]).double()
        gram += piece @ piece.T
    return ((gram + gram.T) / 2).view(len(chosen), groups, len(chosen), groups)


def _inner(gram: Tensor) -> Tensor:
    """Return I as (K, K): different groups only, or the plain product of one exact group."""
    groups = gram.shape[1]
    total = gram.sum((1, 3))
    if groups == 1:
        return total
    return (total - gram.diagonal(dim1=1, dim2=3).sum(-1)) / (groups * (groups - 1))


def relations(inner: Tensor) -> tuple[Tensor, Tensor]:
    """Return √I_kk (…, K), NaN where I_kk is negative, and I_kj / √(I_kk I_jj) (…, K, K) of I (…, K, K)."""
    squares = inner.diagonal(dim1=-2, dim2=-1)
    # √(x·x) = x in IEEE arithmetic while √x·√x need not be: so a client's cosine with itself is exactly 1.
    cosines = inner / (squares[..., :, None] * squares[..., None, :]).sqrt()
    norms = torch.where(squares > 0, squares, torch.nan).sqrt()
    unknown = (norms[..., :, None] + norms[..., None, :]).isnan()
    return norms, torch.where(unknown, torch.nan, cosines)


def average(matrices: Tensor, pairs: Pairs) -> Tensor:
    clients = matrices.shape[-1]
    if pairs == "all_including_self":
        return matrices.mean((-2, -1))
    return matrices[..., ~torch.eye(clients, dtype=torch.bool)].mean(-1)
