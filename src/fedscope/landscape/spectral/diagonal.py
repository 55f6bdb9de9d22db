"""The diagonal of H, and each tensor's block trace, from the same Hutchinson products.

E[z ⊙ Hz] = diag(H) for independent ±1 entries (Bekas, Kokiopoulou and Saad 2007). Summed over a parameter
tensor the same products estimate the trace of its diagonal block, the "diagonal" that the published FedAlign
script compares between clients. What a subspace knows exactly is left out of H and its diagonal added, as in
:mod:`fedscope.landscape.spectral.hutchinson_trace`.

A network's few large eigenvalues make most of the noise: the variance of (z ⊙ Hz)_i is Σ_{j≠i} H_ij². With a
Krylov basis in place of them (:func:`deflated_diagonal`) as many products have a far smaller error.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.operators.probes import Sampler, ended, generator_of, probe_products, rademacher
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.deflation import affordable, growing
from fedscope.landscape.spectral.probe_tally import TraceTally, remainder
from fedscope.landscape.spectral.spectral_results import Diagonal


def diagonal(
    op: Operator,
    *,
    known: Subspace | None = None,
    probes: int = 64,
    sampler: Sampler = rademacher,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    groups: int = 8,
    by_batch: bool = True,
    progress: Progress | None = None,
) -> Diagonal:
    """Estimate diag(H), element by element and summed over the operator's blocks, with standard errors.

    Probe i belongs to group i mod G; the groups' means are independent estimates, from which products of
    diagonals can be formed without bias (what ``known`` adds to each is not random). A sampler that ends
    before ``probes`` is reached, or just then, has given a complete set (``orthogonal``): the values are
    exact, the errors 0, and there is one group.

    Args:
        op: symmetric operator; its ``blocks`` name the tensors.
        known: a basis with its products by ``op``; its part of the diagonal is exact.
        probes: products to take, at least 2.
        sampler: distribution of the probes.
        generator: draws the probes.
        seed: of such a generator instead; 0 if neither is given.
        groups: G, at most ``probes``.
        by_batch: False: without the error of ``trace`` over the samples, which may be faster.
        progress: called after every product.

    Raises:
        UserError: fewer than 2 probes, ``groups`` outside 1…probes, or both ``generator`` and ``seed``.
    """
    if probes < 2:
        raise UserError(f"{probes} probes were asked for; a standard error needs at least 2")
    if not 1 <= groups <= probes:
        raise UserError(f"{groups} groups of {probes} probes: choose 1 to {probes} groups, or more probes")
    generator = generator_of(generator, seed)
    seed = generator.initial_seed()
    vectors = sampler(op.shape[0], generator, op.dtype, op.device)
    by_group = torch.empty(groups, op.shape[0], dtype=torch.float64, device=op.device)
    element, block, tally = (
        _RunningMoments(),
        _RunningMoments(),
        TraceTally(op, known, signs=sampler is rademacher),
    )
    exactly = known.diagonal() if known else torch.zeros((), dtype=torch.float64, device=op.device)
    for z, product in probe_products(remainder(op, known), vectors, probes, by_batch=by_batch):
        sample = (z.double() * product.vector).add_(exactly)
        element.add(sample)
        block.add(block_sums(sample, op))
        turn, group = divmod(tally.probes, groups)
        tally.add(z, product)
        _add_to_mean(by_group[group], sample, turn + 1)
        del z, product, sample  # a block stays as long as one of its probes does
        if progress:
            progress(tally.probes, probes)
    exact = ended(vectors)
    means = element.mean[None] if exact else by_group
    return Diagonal(
        parameter=element.mean,
        tensor=block.mean,
        parameter_stderr=torch.zeros_like(element.mean) if exact else element.stderr(),
        tensor_stderr=torch.zeros_like(block.mean) if exact else block.stderr(),
        dof=math.inf if exact else tally.probes - 1,
        names=tuple(name for name, _ in op.blocks),
        groups=means,
        tensor_groups=torch.stack([block_sums(mean, op) for mean in means]),
        trace=tally.result(exact=exact, seed=seed),
        probes=tally.probes,
        matvecs=tally.probes,
        seed=seed,
    )


def deflated_diagonal(
    op: Operator,
    *,
    known: Subspace | None = None,
    probes: int,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    groups: int = 8,
    by_batch: bool = True,
    progress: Progress | None = None,
) -> Diagonal:
    """Estimate diag(H) beside a Krylov basis of one row for every two probes.

    Between the two the products are then split nearly at best for the Hessians of trained networks: more rows
    would lower the variance by less than the probes that they cost.

    Args:
        op: symmetric operator; its ``blocks`` name the tensors.
        known: take this basis, independent of the probes, instead of a new one.
        probes: products to take beside the ``probes // 2`` of a new basis (fewer where 2 GiB hold no more).
        generator: draws the probes, and one number that decides the basis: operators that are given
            generators of the same state see the same probes, however their bases come about.
        seed: of such a generator instead; 0 if neither is given.
        groups: of the probes, as in :func:`diagonal`.
        by_batch: as there.
        progress: called after every probe, and once for the basis.

    Raises:
        UserError: as :func:`diagonal`.
    """
    generator = generator_of(generator, seed)
    start, rows, spent = _basis_stream(generator), min(probes // 2, affordable(op)), 0
    if known is None and rows > 0:
        known = growing(op, None, start, rows, by_batch=by_batch)(rows)
        spent = known.matvecs
    if progress:
        progress(spent, spent + probes)
    found = diagonal(
        op,
        known=known,
        probes=probes,
        generator=generator,
        groups=groups,
        by_batch=by_batch,
        progress=progress and (lambda done, _, *text: progress(spent + done, spent + probes, *text)),
    )
    return replace(found, matvecs=spent + found.matvecs, subspace=known)


def deflated_probes(op: Operator, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the probes, (n,) each, that :func:`deflated_diagonal` takes with a generator of this state."""
    _basis_stream(generator)
    return rademacher(op.shape[0], generator, op.dtype, op.device)


def _basis_stream(generator: torch.Generator) -> torch.Generator:
    """Return what draws the start of a basis: one number of the probes' generator decides it."""
    return torch.Generator().manual_seed(int(torch.randint(1 << 62, (), generator=generator)))


def block_sums(vector: Tensor, op: Operator) -> Tensor:
    return torch.stack([piece.sum() for piece in torch.split(vector, [length for _, length in op.blocks])])


def _add_to_mean(mean: Tensor, sample: Tensor, count: int) -> None:
    """Make the mean of count − 1 samples that of count, in place; ``sample`` is overwritten."""
    if count == 1:
        mean.copy_(sample)
    else:
        mean.add_(sample.sub_(mean).div_(count))


class _RunningMoments:
    """Element-wise running mean and sum of squared deviations (Welford 1962): exact for constants."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(())
        self._squares = torch.zeros(())

    def add(self, sample: Tensor) -> None:
        self.count += 1
        if self.count == 1:
            self.mean, self._squares = sample.clone(), torch.zeros_like(sample)
            return
        change = sample - self.mean
        self.mean.add_(change / self.count)
        self._squares.add_(change.mul_(sample - self.mean))

    def stderr(self) -> Tensor:
        return (self._squares / (self.count - 1) / self.count).sqrt()
