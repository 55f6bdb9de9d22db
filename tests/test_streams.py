from itertools import product

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
