"""H_N and H_D of the distributions that the clients' samples are drawn from.

Of few samples a client's diagonal is noisy, ‖D̂‖² exceeds ‖D‖² by the noise, and so H_D is too low and H_N in
general too high. Inner products of different parts of the samples have no such bias: with the parts d_b of
the samples' diagonal D̂ = Σ w_b d_b, w_b = n_b/N,

    U_kk = (‖D̂_k‖² − Σ w_b² ‖d_b‖²) / (1 − Σ w_b²),   E[U_kk] = ‖D_k‖²,

while ⟨D̂_k, D̂_j⟩ of clients with samples of their own is unbiased as it is. With the covariance Σ/N of D̂

    Var U_kk = 4 DᵀΣD/N + 2 tr Σ²/N² / (1 − Σ w_b²).

Both terms are estimated without bias, and apart, since a jackknife over the parts counts the second twice:
DᵀΣD + tr Σ²/N by the spread of ⟨d_b, D̂⟩, and tr Σ² by the parts' Gram matrix, whatever their distribution
(Himeno and Yamada 2014). So the bias of √U_kk, −Var U/(8‖D‖³), and what squaring differences adds are
removed to second order in 1/N. Heavy tails of ⟨d_b, D̂⟩ leave fewer degrees of freedom. H_D is corrected by
the delete-one jackknife, which also says how far it scatters (parts of unequal sizes: Busing, Meijer and van
der Leeden 1999). Where the samples are N of a client's M, Σ is 1 − N/M times as large.

Probes tell all of it (:meth:`~fedscope.landscape.operators.base.Operator.diagonal_parts`): products of two
probes' parts, and products of two such products of four probes, have no noise on average.

Symbols: K clients, B parts of one's samples, M probes, n parameters, T tensors.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from fedscope.choices import Pairs, Reading
from fedscope.errors import UserError
from fedscope.landscape.heterogeneity.similarity import (
    DiagonalSimilarity,
    average,
    cosine_estimate,
    mean_gap,
    relations,
    relative,
    squared,
)
from fedscope.landscape.operators.base import Operator, runs
from fedscope.landscape.operators.probes import block_size, rademacher
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.statistics.standard_errors import combined, deleted, sample_error

PROBES = 8  # of each client
PARTS = 16  # of each client's samples, at most
_FEWEST = 4  # parts, and probes: two products without a common factor
_CHUNK = 1 << 22  # float64 numbers converted at a time


@dataclass(frozen=True)
class Parts:
    """Of one client in one reading, as far as they differ from the client's whole."""

    shares: Tensor  # (B,) float64: n_b/N
    factor: float  # of a finite population
    onto: Tensor  # (B, K) float64: ⟨d_b − D̂_k, D̂_j⟩
    squares: Tensor  # (B,) float64: ‖d_b‖² − ‖D̂_k‖²
    variance: float = 0.0  # of U_kk, without bias: noise may carry it below 0
    least: float = 0.0  # what an error takes the variance for at least


def client_parts(
    operators: Iterable[Operator],
    diagonals: Mapping[Reading, Tensor],
    generator: torch.Generator,
    probes: int = PROBES,
    progress: Progress | None = None,
) -> tuple[dict[Reading, list[Parts]], int]:
    """Return the clients' parts in both readings, and the products that they took.

    Nothing where no probes are to be taken, or a client's operator has fewer than four batches or cannot tell
    its parts. A client all of whose samples were taken costs no product. ``diagonals`` are the D̂: (K, n) of
    the parameters, (K, T) of the tensors' block traces.
    """
    if 0 < probes < _FEWEST:
        raise UserError(f"{probes} probes cannot tell the samples' errors; take at least {_FEWEST}, or none")
    found: dict[Reading, list[Parts]] = {"parameter": [], "tensor": []}
    spent = 0
    for client, op in enumerate(operators if probes else ()):
        counts = torch.tensor(op.weights or (), dtype=torch.float64)
        if len(counts) < _FEWEST:
            return {}, spent
        sizes = torch.stack([counts[list(run)].sum() for run in runs(len(counts), PARTS)])
        if op.finite_population == 0:
            nothing = sizes.new_zeros(len(sizes), len(diagonals["tensor"]))
            for entries in found.values():
                entries.append(Parts(sizes / sizes.sum(), 0.0, nothing, nothing[:, 0]))
            continue
        seen: dict[Reading, list[Tensor]] = {"parameter": [], "tensor": []}
        lengths = [length for _, length in op.blocks]
        for rows in _probed(op, generator, probes):
            if rows is None:
                return {}, spent
            traces = torch.stack([piece.double().sum(2) for piece in rows.split(lengths, 2)], 2)
            seen["parameter"].append(_products(rows, diagonals["parameter"]))
            seen["tensor"].append(_products(traces, diagonals["tensor"]))
        spent += probes
        if progress:
            progress(spent, None)
        for reading, entries in found.items():
            entries.append(_parts(seen[reading], sizes, op.finite_population, client))
    return (found if probes else {}), spent


def of_populations(
    found: DiagonalSimilarity, parts: Sequence[Parts], pairs: Pairs
) -> tuple[Estimate, Estimate, Estimate]:
    """Return H_N, scale-free H_N and H_D of the populations, with errors over probes and samples together.

    NaN where a client's norm is below the samples' noise: for H_D where its U_kk is not positive, for H_N
    where it is below a third of its standard error too.
    """
    inner = found.inner.clone()
    for k, one in enumerate(parts):
        inner[k, k] = _square(one, found.inner[k, k])
    (norms, _), (plain, _) = relations(inner), relations(found.inner)
    noise = torch.tensor([max(one.variance, one.least) for one in parts], dtype=torch.float64)
    norms = torch.where(norms**2 > noise.sqrt() / 3, norms, torch.nan)
    root = (norms + found.norms - plain, 1 / (2 * norms), -1 / (4 * norms**3))
    log = (norms.log() + found.logs - plain.log(), 1 / (2 * norms**2), -1 / (2 * norms**4))
    dof = found.H_N.dof
    return (
        _mean_gap(squared, parts, *root, (found.spread, dof), pairs, found.H_N.high),
        _mean_gap(relative, parts, *log, (found.logs_spread, dof), pairs, math.inf),
        _mean_cosine(found, parts, inner, pairs),
    )


def _mean_gap(
    curve: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    parts: Sequence[Parts],
    sizes: Tensor,
    slopes: Tensor,
    bends: Tensor,
    probed: tuple[Tensor, float],
    pairs: Pairs,
    most: float,
) -> Estimate:
    variances = torch.tensor([one.variance for one in parts], dtype=torch.float64)
    least = torch.tensor([one.least for one in parts], dtype=torch.float64)
    level = sizes - bends * variances / 2
    wide = torch.diag(slopes**2 * torch.maximum(variances, least))  # a row each
    errors = [(_of_gaps(wide[k]), sample_error(one.onto[:, k])[1]) for k, one in enumerate(parts)]
    spread = probed[0] + _of_gaps(slopes**2 * variances)
    return mean_gap(curve, level[:, None] - level, spread, [probed, *errors], pairs, most)


def _of_gaps(variances: Tensor) -> Tensor:
    """Return the variances (K, K) of the differences of K independent numbers."""
    return (variances[:, None] + variances).fill_diagonal_(0)


def _mean_cosine(found: DiagonalSimilarity, parts: Sequence[Parts], inner: Tensor, pairs: Pairs) -> Estimate:
    """Return H_D of the populations from their inner products, by the jackknife over each client's parts."""
    (_, cosines), (_, plain) = relations(inner), relations(found.inner)
    mean, errors = average(cosines, pairs), [(found.H_D.stderr, found.H_D.dof)]
    value = mean + found.H_D.value - average(plain, pairs)  # less the probes' bias
    for k, one in enumerate(parts):
        _, left = relations(_without_each(one, inner, found.inner[k], k))
        bias, variance = deleted(mean, average(left, pairs), one.shares)
        value = value - one.factor * bias
        errors.append((math.sqrt(one.factor * float(variance)), len(one.shares) - 1))
    return cosine_estimate(float(value), *combined(*errors))


def _square(one: Parts, plain: Tensor) -> Tensor:
    """Return ‖D_k‖² of a client from its samples' ‖D̂_k‖²: U_kk, or of a finite population between the two."""
    w2 = one.shares**2
    unbiased = (plain - (w2 * (one.squares + plain)).sum()) / (1 - w2.sum())
    return plain + one.factor * (unbiased - plain)


def _without_each(one: Parts, inner: Tensor, plain: Tensor, k: int) -> Tensor:
    """Return the inner products (B, K, K) without each part of client k; ``plain`` (K,): of its samples."""
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


def _probed(op: Operator, generator: torch.Generator, probes: int) -> Iterator[Tensor | None]:
    """Yield the parts (m, B, n) by the next probes, an even number at a time; None where there are none."""
    vectors = rademacher(op.shape[0], generator, op.dtype, op.device)
    together = max(2, block_size(op.shape[0]) // 2 * 2)
    for begin in range(0, probes, together):
        rows = torch.stack(list(islice(vectors, min(together, probes - begin))))
        yield op.diagonal_parts(rows, PARTS)


def _products(parts: Tensor, diagonals: Tensor) -> Tensor:
    """Return the inner products (m, B, m·B + K) of parts (m, B, n) with each other and with diagonals."""
    rows = parts.flatten(0, 1)
    width = max(1, _CHUNK // len(rows))
    total = torch.zeros(len(rows), len(rows) + len(diagonals), dtype=torch.float64, device=rows.device)
    for piece, others in zip(rows.split(width, 1), diagonals.split(width, 1), strict=True):
        wide = piece.double()
        total += wide @ torch.cat([wide, others.to(wide)]).T
    return total.view(*parts.shape[:2], -1).cpu()


def _parts(seen: Sequence[Tensor], sizes: Tensor, factor: float, client: int) -> Parts:
    B, N, shares = len(sizes), float(sizes.sum()), sizes / sizes.sum()
    onto = torch.cat([one[..., len(one) * B :] for one in seen])  # (M, B, K)
    onto = onto - torch.einsum("b,mbk->mk", shares, onto)[:, None]
    grams = [one[..., : len(one) * B].unflatten(2, (len(one), B)).transpose(1, 2) for one in seen]
    grams = [(gram + gram.mT) / 2 for gram in grams]  # (m, m, B, B), symmetric in both
    squares = [gram.diagonal(dim1=2, dim2=3) - (gram @ shares @ shares)[..., None] for gram in grams]
    rest = 1 - float(shares.square().sum())
    removed = [one @ shares.square() / rest for one in squares]  # from ‖D̂‖² for U
    probed = float(_unlike(removed)) ** 2 - float(_unlike_products(removed))  # what these probes add
    along, each = onto[..., client].sum(0).square(), onto[..., client].square().sum(0)
    M = len(onto)
    first = float(sizes @ (along - each)) / (M * (M - 1) * (B - 1))  # DᵀΣD + tr Σ²/N
    noisy = float(sizes @ along) / (M**2 * (B - 1))
    second = _square_trace([_centred(gram, shares) * (sizes[:, None] * sizes).sqrt() for gram in grams])
    variance = 4 * (first / N - second / N**2) + 2 * factor * second / N**2 / rest + factor * probed
    return Parts(shares, factor, onto.mean(0), _unlike(squares), factor * variance, factor * 2 * noisy / N)


def _square_trace(grams: Sequence[Tensor]) -> float:
    """Return tr Σ² without bias from Gram matrices (m, m, B, B) of B centred vectors (Himeno, Yamada).

    B (B − 2) (B − 3) tr Σ² = (B − 2) Σ_ab g_ab² + (Σ_a g_aa)²/(B − 1) − B Σ_a g_aa².
    """
    B = grams[0].shape[-1]
    each = _unlike_products(grams)
    whole = _unlike_products([gram.diagonal(dim1=2, dim2=3).sum(2) for gram in grams])
    total = (B - 2) * each.sum() + whole / (B - 1) - B * each.trace()
    return float(total) / (B * (B - 2) * (B - 3))


def _centred(gram: Tensor, shares: Tensor) -> Tensor:
    """Return the Gram matrices (…, B, B) of parts less their mean."""
    rows = gram - (shares @ gram)[..., None, :]
    return rows - (rows @ shares)[..., None]


def _unlike(blocks: Sequence[Tensor]) -> Tensor:
    """Return the mean of symmetric (m, m, …) over all pairs of different probes of a block."""
    total = torch.stack([one.sum((0, 1)) - _same(one).sum(0) for one in blocks]).sum(0)
    return total / sum(len(one) * (len(one) - 1) for one in blocks)


def _unlike_products(blocks: Sequence[Tensor]) -> Tensor:
    """Return the mean of symmetric (m, m, …) times itself over all pairs of pairs without a common probe."""
    total, shared, count, joint = torch.zeros(()), torch.zeros(()), 0, 0
    for one in blocks:
        m, of_probe = len(one), one.sum(1) - _same(one)
        total = total + of_probe.sum(0) / 2
        squares = (one.square().sum((0, 1)) - _same(one).square().sum(0)) / 2
        shared = shared + of_probe.square().sum(0) - squares
        count, joint = count + m * (m - 1) // 2, joint + m * (m - 1) ** 2 - m * (m - 1) // 2
    return (total.square() - shared) / (count**2 - joint)


def _same(block: Tensor) -> Tensor:
    return torch.einsum("mm...->m...", block)
