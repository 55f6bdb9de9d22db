"""H_N and H_D of the distributions that the clients' samples are drawn from, by the jackknife over batches.

Of few samples a client's diagonal is noisy, ‖D̂‖² exceeds ‖D‖² by the noise, and so H_D is too low and H_N in
general too high. Inner products of different batches have no such bias: with the parts d_b of the samples'
diagonal D̂ = Σ w_b d_b, w_b = n_b/N,

    U_kk = (‖D̂_k‖² − Σ w_b² ‖d_b‖²) / (1 − Σ w_b²),   E[U_kk] = ‖D_k‖²,

while ⟨D̂_k, D̂_j⟩ of clients with samples of their own is unbiased as it is. What is not linear in these is
corrected by the delete-one jackknife, which also says how far it scatters (batches of unequal sizes: Busing,
Meijer and van der Leeden 1999). Both, times 1 − N/M where the samples are N of a client's M.

All that is needed are ⟨d_b, D̂_j⟩ and ‖d_b‖². Probes tell them: each batch's part of z ⊙ Hz, and the products
of different probes' parts (:class:`~fedscope.landscape.operators.base.DiagonalParts`).

Symbols: K clients, B batches of one, M probes, n parameters, T tensors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from fedscope.choices import Pairs, Reading
from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.similarity import (
    Comparison,
    average,
    cosine_estimate,
    mean_squared_gap,
    relations,
)
from fedscope.landscape.operators.base import DiagonalParts, Operator
from fedscope.landscape.operators.probes import block_size, rademacher
from fedscope.landscape.operators.progress import Progress
from fedscope.landscape.spectral.results import Estimate
from fedscope.statistics.intervals import combined, deleted

PROBES = 8  # of each client
_FEWEST = 3  # batches: two have no inner product left where one is deleted


@dataclass(frozen=True)
class Parts:
    """Of one client in one reading, as far as they differ from the client's whole."""

    shares: Tensor  # (B,) float64: n_b/N
    factor: float  # of a finite population
    onto: Tensor  # (B, K) float64: ⟨d_b − D̂_k, D̂_j⟩
    squares: Tensor  # (B,) float64: ‖d_b‖² − ‖D̂_k‖²


def client_parts(
    operators: Iterable[Operator],
    diagonals: Mapping[Reading, Tensor],
    generator: torch.Generator,
    probes: int = PROBES,
    progress: Progress | None = None,
) -> tuple[dict[Reading, list[Parts]], int]:
    """Return the clients' parts in both readings, and the products that they took.

    Nothing where no probes are to be taken, or a client's operator has fewer than three batches or cannot
    tell its parts. A client all of whose samples were taken costs no product.

    Args:
        operators: one per client, in their order.
        diagonals: the clients' D̂: (K, n) of the parameters, (K, T) of the tensors' block traces.
        generator: draws the probes.
        probes: M, at least 2; 0 for none.
        progress: called after every client.

    Raises:
        UserError: one probe, which has no product with another.
    """
    if probes == 1:
        raise UserError("one probe cannot tell the samples' errors; take at least 2, or none")
    found: dict[Reading, list[Parts]] = {"parameter": [], "tensor": []}
    spent = 0
    for op in operators if probes else ():
        shares = torch.tensor(op.weights or (), dtype=torch.float64) / sum(op.weights or (1,))
        if len(shares) < _FEWEST:
            return {}, spent
        if op.finite_population == 0:
            nothing = shares.new_zeros(len(shares), len(diagonals["tensor"]))
            for entries in found.values():
                entries.append(Parts(shares, 0.0, nothing, nothing[:, 0]))
            continue
        blocks = _probed(op, diagonals["parameter"], generator, probes)
        if blocks is None:
            return {}, spent
        spent += probes
        if progress:
            progress(spent, None)
        sums = torch.cat([one.blocks for one in blocks]).cpu()  # (M, B, T)
        mean = torch.einsum("b,mbt->mt", shares, sums)
        inner = {
            "parameter": torch.cat([one.onto for one in blocks]).cpu().mean(0),
            "tensor": sums.mean(0) @ diagonals["tensor"].double().T,
        }
        squares = {
            "parameter": _unlike([(one.gram.cpu(), one.whole.cpu()) for one in blocks]),
            "tensor": _unlike([(torch.einsum("mbt,lbt->bml", sums, sums), mean @ mean.T)]),
        }
        for reading, entries in found.items():
            onto = inner[reading] - shares @ inner[reading]
            entries.append(Parts(shares, op.finite_population, onto, squares[reading]))
    return (found if probes else {}), spent


def of_populations(found: Comparison, parts: Sequence[Parts], pairs: Pairs) -> tuple[Estimate, Estimate]:
    """Return H_N and H_D of the populations, with the errors over probes and samples together.

    NaN where a client's U_kk is not positive: its norm is below the samples' noise.
    """
    plain = found.inner
    inner = plain.clone()
    for k, one in enumerate(parts):
        inner[k, k] = _square(one, plain[k, k])
    norms, cosines = relations(inner)
    cosine_mean, errors = average(cosines, pairs), [(found.H_D.stderr, found.H_D.dof)]
    biases, variances = torch.zeros_like(norms), torch.zeros_like(norms)
    for k, one in enumerate(parts):
        left_norms, left_cosines = relations(_without_each(one, inner, plain[k], k))
        bias, variance = deleted(norms[k], left_norms[:, k], one.shares)
        biases[k], variances[k] = one.factor * bias, one.factor * variance
        bias, variance = deleted(average(cosines, pairs), average(left_cosines, pairs), one.shares)
        cosine_mean -= one.factor * bias
        errors.append((math.sqrt(one.factor * float(variance)), len(one.shares) - 1))
    plain_norms, plain_cosines = relations(plain)
    norms += found.norms - plain_norms - biases  # the first two: the probes' bias
    cosine_mean += found.H_D.value - average(plain_cosines, pairs)
    spread = found.spread + (variances[:, None] + variances).fill_diagonal_(0)
    dof = int(min(found.H_N.dof, *(len(one.shares) - 1 for one in parts)))
    return (
        mean_squared_gap(norms[:, None] - norms, spread, dof, pairs, found.H_N.high),
        cosine_estimate(float(cosine_mean), *combined(*errors)),
    )


def _square(one: Parts, plain: Tensor) -> Tensor:
    """Return ‖D_k‖² of a client from its samples' ‖D̂_k‖²: U_kk, or of a finite population between the two."""
    w2 = one.shares**2
    unbiased = (plain - (w2 * (one.squares + plain)).sum()) / (1 - w2.sum())
    return plain + one.factor * (unbiased - plain)


def _without_each(one: Parts, inner: Tensor, plain: Tensor, k: int) -> Tensor:
    """Return the inner products (B, K, K) without each batch of client k; ``plain`` (K,): of its samples."""
    w, squares = one.shares, one.squares + plain[k]
    kept = 1 - w
    rows = plain - (w / kept)[:, None] * one.onto
    square = plain[k] - 2 * w * (one.onto[:, k] + plain[k]) + w**2 * squares  # ‖D̂_k − w_b d_b‖²
    rest = (w**2 * squares).sum() - w**2 * squares
    biased = square / kept**2
    unbiased = (square - rest) / (kept**2 - ((w**2).sum() - w**2))
    rows[:, k] = biased + one.factor * (unbiased - biased)
    left = inner.repeat(len(w), 1, 1)
    left[:, k], left[:, :, k] = rows, rows
    return left


def _probed(
    op: Operator, diagonals: Tensor, generator: torch.Generator, probes: int
) -> list[DiagonalParts] | None:
    """Return the parts of all probes, some at a time; None where the operator cannot tell them."""
    vectors, found = rademacher(op.shape[0], generator, op.dtype, op.device), list[DiagonalParts]()
    together = max(2, block_size(op.shape[0]))
    for begin in range(0, probes, together):
        rows = torch.stack(list(islice(vectors, min(together, probes - begin))))
        parts = op.diagonal_parts(rows, diagonals.to(op.device, op.dtype))
        if parts is None:
            return None
        found.append(parts)
    return found


def _unlike(grams: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return ‖d_b‖² − ‖D̂‖² (B,) from pairs of Gram matrices, (B, m, m) and (m, m), of unlike probes alone."""
    of_batches, of_all, pairs = torch.zeros(()), torch.zeros(()), 0
    for gram, whole in grams:
        of_batches = of_batches + gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(1)
        of_all = of_all + whole.sum() - whole.trace()
        pairs += len(whole) * (len(whole) - 1)
    return (of_batches - of_all) / pairs
