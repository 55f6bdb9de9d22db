"""Random streams derived from (seed, purpose, round, client), and nothing else.

Because a stream depends only on its key, the number of workers, the order of clients, or switching a
method off never changes another draw.

PyTorch's CPU generator seeds itself with the low 32 bits of a key, NumPy's with all 63. So among n of
PyTorch's streams there are about n²/2³³ pairs with equal draws: 1 in the 100,000 streams of 500 rounds with
100 clients each, and one in every 86th run of 500 rounds with 10 clients. Such a pair are two clients' batch
orders, mostly of two rounds, each of them still uniform. More bits would change every draw of every run.
"""

import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def key(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """Return a 63-bit seed for the stream of this purpose, round and client."""
    sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), round, client])
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def torch_stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
    """Return a fresh ``torch.Generator`` for this key, on the CPU: the same draws for every device."""
    return torch.Generator().manual_seed(key(seed, purpose, round, client))


def numpy_stream(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    return np.random.default_rng(key(seed, purpose, round, client))


def random_signs(
    size: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return independent ±1 on the generator's device; no other memory is taken."""
    coins = torch.randint(2, size, generator=generator, device=generator.device, dtype=dtype)
    return coins.mul_(2).sub_(1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python for code that draws from them; restore them."""
    before = np.random.get_state(), random.getstate()
    with torch.random.fork_rng():
        reseed(seed)
        try:
            yield
        finally:
            np.random.set_state(before[0])
            random.setstate(before[1])


def reseed(seed: int) -> None:
    """Seed the global generators, inside :func:`seeded`."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
