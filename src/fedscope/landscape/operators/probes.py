"""Random probe vectors z with E[z zᵀ] = I, for Hutchinson-type estimates.

A sampler that ends has then given a complete set, Σ z zᵀ / M = I: averages over it are exact.
Draws are made on the generator's device and moved, so that a CPU generator gives the same probes everywhere.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator, Product
from fedscope.streams import random_signs

DEFAULT_SEED = 0
LARGEST_ORTHOGONAL = 16384
BLOCK = 8  # most probes per pass over the data
_MEMORY = 1 << 30  # bytes of a block in float64; a product takes some three times as much

Sampler = Callable[[int, torch.Generator, torch.dtype, torch.device], Iterator[Tensor]]
"""(n, generator, dtype, device) ↦ probes of shape (n,)."""


def generator_of(generator: torch.Generator | None = None, seed: int | None = None) -> torch.Generator:
    """Return what a call draws from, by the one rule of all public functions.

    That is the ``generator`` given, which the draws advance; or a fresh one on the CPU of the ``seed`` given;
    or one of ``DEFAULT_SEED``, so that a call without either repeats itself. Global generators are neither
    read nor changed.
    """
    if generator is not None and seed is not None:
        raise UserError("give generator or seed, not both: a generator has its own seed")
    if generator is not None:
        return generator
    return torch.Generator().manual_seed(DEFAULT_SEED if seed is None else seed)


def seed_of(generator: torch.Generator | None = None, seed: int | None = None) -> int:
    """Return the seed of a call that has several streams: ``seed``, or one that the ``generator`` draws."""
    own = generator_of(generator, seed)
    if generator is None:
        return own.initial_seed()
    return int(torch.randint(1 << 62, (), generator=own, device=own.device))


def rademacher(
    n: int, generator: torch.Generator, dtype: torch.dtype, device: torch.device
) -> Iterator[Tensor]:
    """Yield independent ±1 vectors without end (Hutchinson 1990): the least variance of i.i.d. entries."""
    while True:
        yield random_signs((n,), generator, dtype).to(device)


def orthogonal(
    n: int, generator: torch.Generator, dtype: torch.dtype, device: torch.device
) -> Iterator[Tensor]:
    """Yield √n times the n columns of a Haar-random orthogonal matrix, then end: an exact full set.

    Raises:
        UserError: n is beyond ``LARGEST_ORTHOGONAL``; the matrix would not fit in memory.
    """
    if n > LARGEST_ORTHOGONAL:
        raise UserError(
            f"orthogonal probes need an {n} × {n} matrix; use rademacher beyond {LARGEST_ORTHOGONAL}"
        )
    gaussian = torch.randn(n, n, generator=generator, device=generator.device, dtype=torch.float64)
    columns, triangle = torch.linalg.qr(gaussian)
    # QR's signs are a convention; a non-negative diagonal of R makes the law uniform (Mezzadri 2007).
    columns *= triangle.diagonal().sign() * n**0.5
    yield from columns.T.to(device, dtype).contiguous()


def ended(vectors: Iterator[Tensor]) -> bool:
    """Say whether a sampler has given its whole, exact set."""
    return next(vectors, None) is None


def block_size(n: int) -> int:
    return max(1, min(BLOCK, _MEMORY // (8 * n)))


def probe_products(
    op: Operator,
    vectors: Iterator[Tensor],
    count: int,
    together: int | None = None,
    *,
    by_batch: bool = True,
) -> Iterator[tuple[Tensor, Product]]:
    """Yield the next ``count`` probes with their products, some ``together``; fewer if they end."""
    n = op.shape[0]
    together = together or block_size(n)
    for begin in range(0, count, together):
        rows, drawn = torch.empty(min(together, count - begin), n, dtype=op.dtype, device=op.device), 0
        for vector in islice(vectors, len(rows)):
            rows[drawn] = vector
            drawn += 1
        yield from zip(rows[:drawn], op.products(rows[:drawn], by_batch=by_batch), strict=True)
        del rows  # before the next are drawn
