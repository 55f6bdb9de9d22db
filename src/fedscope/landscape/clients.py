"""Cross-client curvature: how much the Hessian diagonals of the clients differ (Mendieta et al. 2022, 3.2).

For the diagonals D_k: H_N^{kj} = (‖D_k‖ − ‖D_j‖)² and H_D^{kj} = ⟨D_k, D_j⟩ / (‖D_k‖·‖D_j‖).

The squared norm of an estimate D̂ exceeds ‖D‖² by the probes' variance, which here is seldom small. So the
probes of each client form G groups with means g^a, and inner products use different groups only:

    I_kj = Σ_{a≠b} ⟨g_k^a, g_j^b⟩ / (G (G − 1)),   E[I_kj] = ⟨D_k, D_j⟩.

H_N = (√I_kk − √I_jj)² is still a square of a noisy difference; its bias, the variance of that difference, is
estimated by the jackknife over groups and subtracted.

Symbols: K clients, G groups, n parameters; R the Gram matrix as (K, G, K, G).
"""

import math
from collections.abc import Iterable
from typing import get_args

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.diagonal import diagonal
from fedscope.landscape.errorbars import jackknife_variance
from fedscope.landscape.operators import Blocks, Operator
from fedscope.landscape.probes import DEFAULT_SEED, Sampler, rademacher
from fedscope.landscape.progress import Progress
from fedscope.landscape.results import CrossClient, Estimate, Pairs, Reading

_CHUNK = 1 << 22  # float64 numbers converted at a time


def cross_client(
    operators: Iterable[Operator],
    *,
    probes: int = 64,
    seed: int = DEFAULT_SEED,
    pairs: Pairs = "distinct",
    groups: int = 8,
    sampler: Sampler = rademacher,
    progress: Progress | None = None,
) -> CrossClient:
    """Compare the Hessian diagonals of K clients, for whole diagonals and for tensors' block traces.

    Every client sees the same probes, so that equal clients give exactly H_N = 0 and H_D = 1. The readings
    are ``parameter`` (D has n entries) and ``tensor`` (D has one entry per parameter tensor: its block's
    trace).

    The matrices hold the corrected estimates as they are: noise may carry H_N below 0 and H_D beyond ±1.
    Their pair averages are cut to those ranges of the true values. Standard errors are the jackknife's over
    groups, of the averages before the cut and without the correction of H_N. Where noise makes a client's
    I_kk negative (or that of a leave-one-out set), its norm is unknown and the entries are NaN, and so are
    H_N and H_D: take more probes.
    A complete set of probes (``orthogonal``, ``probes`` ≥ n) gives exact values with standard error 0.

    Args:
        operators: one per client, taken one at a time; a generator keeps one model in memory. G·n numbers
            per client are kept, in the operator's dtype, on the CPU.
        probes: products per client.
        seed: of the generator that every client's probes are drawn from.
        pairs: average over ``distinct`` pairs, or over the whole matrix, ``all_including_self``, as the
            published script does: that multiplies H_N by (K−1)/K and makes H_D ((K−1)·H_D + 1)/K.
        groups: G, at least 3 and at most ``probes``.
        sampler: distribution of the probes; the default's errors are the smallest of the i.i.d. ones.
        progress: called after every product; the total is not known.

    Raises:
        UserError: fewer than 2 clients, fewer than 3 groups, unknown ``pairs``, or clients whose parameters
            differ in names or sizes.
    """
    if pairs not in get_args(Pairs):
        raise UserError(f"pairs is {pairs!r}; choose one of {', '.join(get_args(Pairs))}")
    if groups < 3:
        raise UserError(f"{groups} groups cannot give a standard error of products; take at least 3")
    parameter, tensor = [], []
    blocks: Blocks | None = None
    matvecs = 0
    for client, op in enumerate(operators):
        if blocks is not None and op.blocks != blocks:
            raise UserError(
                f"client {client} has other parameters than client 0; compare equal architectures"
            )
        blocks = op.blocks
        found = diagonal(
            op,
            probes=probes,
            sampler=sampler,
            generator=torch.Generator().manual_seed(seed),
            groups=groups,
            progress=_after(matvecs, progress),
        )
        parameter.append(found.groups.to("cpu", op.dtype))
        tensor.append(found.tensor_groups.cpu())
        matvecs += found.matvecs
    if len(parameter) < 2:
        raise UserError(f"{len(parameter)} client given; cross-client curvature compares at least 2")
    by_reading: dict[Reading, _Comparison] = {
        "tensor": _Comparison(tensor, pairs),
        "parameter": _Comparison(parameter, pairs),
    }
    return CrossClient(
        clients=len(parameter),
        pairs=pairs,
        H_N={reading: found.H_N for reading, found in by_reading.items()},
        H_D={reading: found.H_D for reading, found in by_reading.items()},
        H_N_matrix={reading: found.H_N_matrix for reading, found in by_reading.items()},
        H_D_matrix={reading: found.H_D_matrix for reading, found in by_reading.items()},
        matvecs=matvecs,
    )


def _after(matvecs: int, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda done, _, *text: progress(matvecs + done, None, *text)


class _Comparison:
    """H_N and H_D of one reading, from each client's (G, n) group means, through their Gram matrix alone."""

    def __init__(self, rows: list[Tensor], pairs: Pairs) -> None:
        same_as = _first_equal(rows)
        gram = _gram(rows, sorted(set(same_as)))
        # Equal clients share the entries of one Gram block, so that their H_N is 0 and their H_D 1 exactly.
        place = torch.tensor([sorted(set(same_as)).index(j) for j in same_as])
        groups = gram.shape[1]
        gap, cosine = _relations(_inner(gram)[place][:, place])
        H_N_error = H_D_error = 0.0
        bias = torch.zeros_like(gap)
        if groups > 1:
            kept = [[a for a in range(groups) if a != g] for g in range(groups)]
            left = [_relations(_inner(gram[:, keep][..., keep])[place][:, place]) for keep in kept]
            gaps, cosines = (torch.stack(parts) for parts in zip(*left, strict=True))  # (G, K, K)
            bias = jackknife_variance(gaps)
            H_N_error = float(jackknife_variance(_average(gaps**2, pairs)).sqrt())
            H_D_error = float(jackknife_variance(_average(cosines, pairs)).sqrt())
        self.H_N_matrix = gap**2 - bias
        self.H_D_matrix = cosine
        # Where some leave-one-out norm is unknown, so is the error, and a value without one proves nothing.
        known = 1.0 if math.isfinite(H_N_error) else math.nan
        self.H_N = Estimate(known * float(_average(self.H_N_matrix, pairs).clamp(min=0)), H_N_error)
        self.H_D = Estimate(known * float(_average(cosine, pairs).clamp(-1, 1)), known * H_D_error)


def _first_equal(rows: list[Tensor]) -> list[int]:
    return [
        next(j for j, other in enumerate(rows) if other is row or torch.equal(other, row)) for row in rows
    ]


def _gram(rows: list[Tensor], chosen: list[int]) -> Tensor:
    """Return the inner products of the chosen clients' group means as (K, G, K, G) float64."""
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


def _relations(inner: Tensor) -> tuple[Tensor, Tensor]:
    """Return √I_kk − √I_jj and I_kj / √(I_kk I_jj); NaN where a squared norm came out negative."""
    squares = inner.diagonal()
    norms = squares.sqrt()
    # √(x·x) = x in IEEE arithmetic while √x·√x need not be: so a client's cosine with itself is exactly 1.
    cosines = inner / torch.outer(squares, squares).sqrt()
    gaps = norms[:, None] - norms[None, :]
    return gaps, torch.where(gaps.isnan(), torch.nan, cosines)


def _average(matrices: Tensor, pairs: Pairs) -> Tensor:
    """Average (…, K, K) over pairs."""
    clients = matrices.shape[-1]
    if pairs == "all_including_self":
        return matrices.mean((-2, -1))
    return matrices[..., ~torch.eye(clients, dtype=torch.bool)].mean(-1)
