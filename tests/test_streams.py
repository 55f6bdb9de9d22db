from itertools import product

import numpy as np
import torch

from fedscope.streams import key, numpy_stream, torch_stream


def test_every_key_gives_its_own_stream() -> None:
    keys = [key(*parts) for parts in product((0, 1), ("order", "augmentation"), (0, 1, 2), (0, 1, 2))]
    assert len(set(keys)) == len(keys)


def test_a_stream_depends_on_its_key_alone() -> None:
    torch_stream(3, "order", 1, 2)
    first = torch.rand(4, generator=torch_stream(3, "order", 1, 2))
    torch.manual_seed(99)
    assert torch.equal(first, torch.rand(4, generator=torch_stream(3, "order", 1, 2)))
    assert numpy_stream(3, "order", 1, 2).random() == numpy_stream(3, "order", 1, 2).random()


def test_streams_are_pinned() -> None:
    # A change here changes every result a user has ever registered.
    assert key(0, "partition") == 303699200953851812


def test_how_many_bits_of_a_key_a_stream_has() -> None:
    """PyTorch's generator takes 32; where it takes more one day, every run draws other numbers."""
    low, high = 5, 5 + 2**32
    first, second = (torch.rand(8, generator=torch.Generator().manual_seed(seed)) for seed in (low, high))
    assert torch.equal(first, second)
    assert np.random.default_rng(low).random() != np.random.default_rng(high).random()


def test_a_long_runs_streams_do_not_collide() -> None:
    """50 rounds of 100 clients, two streams each: 10,000, of which 1 in 86 sets has an equal pair."""
    low = {
        key(0, purpose, round, client) % 2**32
        for purpose in ("batch order", "augmentation")
        for round in range(50)
        for client in range(100)
    }
    assert len(low) == 10_000
