from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape import Batches


def test_split_keeps_order_and_the_ragged_rest() -> None:
    inputs, targets = torch.arange(14.0).view(7, 2), torch.arange(7)
    batches = Batches(inputs, targets, batch_size=3)
    assert batches.sizes == (3, 3, 1)
    assert (batches.samples, len(batches)) == (7, 3)
    assert torch.equal(torch.cat([x for x, _ in batches]), inputs)
    assert torch.equal(torch.cat([y for _, y in batches]), targets)


def test_an_iterator_is_materialised_once() -> None:
    def loader() -> Iterator[tuple[Tensor, Tensor]]:
        yield torch.ones(4, 2), torch.zeros(4)
        yield torch.zeros(2, 2), torch.ones(2)

    batches = Batches.from_iterable(loader())
    assert batches.sizes == (4, 2)
    assert [float(x.sum()) for x, _ in batches] == [float(x.sum()) for x, _ in batches] == [8.0, 0.0]


def test_to_casts_floating_tensors_and_leaves_labels() -> None:
    batches = Batches(torch.ones(3, 2), torch.arange(3)).to("cpu", torch.float64)
    inputs, targets = next(iter(batches))
    assert inputs.dtype == torch.float64
    assert targets.dtype == torch.int64


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (torch.ones(3, 2), torch.ones(2)),
        (torch.ones(0, 2), torch.ones(0)),
        (torch.tensor(1.0), torch.tensor(1.0)),
    ],
)
def test_unusable_tensors_are_refused(inputs: Tensor, targets: Tensor) -> None:
    with pytest.raises(UserError):
        Batches(inputs, targets)
    with pytest.raises(UserError):
        Batches.from_iterable([(inputs, targets)])


def test_unusable_iterables_and_sizes_are_refused() -> None:
    with pytest.raises(UserError, match="no batches"):
        Batches.from_iterable(iter([]))
    with pytest.raises(UserError, match="pair"):
        Batches.from_iterable([torch.ones(2)])
    with pytest.raises(UserError, match="holds tensors"):
        Batches.from_iterable([({"image": 1}, torch.ones(2))])
    with pytest.raises(UserError, match="batch_size"):
        Batches(torch.ones(2), torch.ones(2), batch_size=0)


def test_dealt_batches_hold_the_same_samples_in_a_random_order() -> None:
    inputs, targets = torch.arange(100.0)[:, None], torch.arange(100)
    stored = Batches(inputs, targets, 50)
    dealt = stored.dealt(32)
    assert dealt.sizes == (9,) * 4 + (8,) * 8  # at least 8 in each
    pairs = [pair for batch in dealt for pair in zip(*batch, strict=True)]
    assert sorted(int(y) for _, y in pairs) == list(range(100))
    assert all(int(x) == int(y) for x, y in pairs)
    means = [float(x.mean()) for x, _ in dealt]
    assert max(means) - min(means) < 60  # 92 in the order of storage
    assert dealt.sha256 == stored.dealt(32).sha256 != stored.dealt(32, seed=1).sha256
    assert len(Batches(inputs, targets, 2).dealt(32)) == 50  # as many as there are


def test_batches_of_several_lengths_stay_as_they_are() -> None:
    ragged = Batches.from_iterable([(torch.ones(9, length), torch.ones(9)) for length in (3, 4)])
    assert ragged.dealt(4) is ragged


def test_the_order_says_which_samples_the_dealt_ones_are() -> None:
    inputs = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    stored = Batches(inputs, torch.arange(50), 20)
    assert stored.order.tolist() == list(range(50))
    for dealt in (stored.dealt(4), stored.dealt(4).dealt(6, seed=1).to("cpu", torch.float64)):
        targets = torch.cat([y for _, y in dealt])
        assert targets.tolist() != list(range(50))
        assert dealt.order.tolist() == targets.tolist()


def test_small_batches_are_joined_in_their_order() -> None:
    batches = Batches(torch.arange(20.0)[:, None], torch.arange(20), 4)
    found = list(batches.joined(9))
    assert [len(targets) for _, targets in found] == [8, 8, 4]
    assert torch.equal(torch.cat([targets for _, targets in found]), torch.arange(20))
    assert torch.equal(torch.cat([inputs for inputs, _ in found]), torch.arange(20.0)[:, None])
    assert [len(targets) for _, targets in batches.joined(3)] == [4] * 5
    uneven = Batches.from_iterable([(torch.zeros(2, n), torch.zeros(2)) for n in (3, 3, 5)])
    assert [tuple(inputs.shape) for inputs, _ in uneven.joined(4)] == [(4, 3), (2, 5)]
    assert [tuple(inputs.shape) for inputs, _ in uneven.joined(9)] == [(2, 3), (2, 3), (2, 5)]


def test_some_samples_are_numbered_anew() -> None:
    dealt = Batches(torch.arange(30.0)[:, None], torch.arange(30), 10).dealt(5)
    places = [torch.tensor([4, 2]), torch.tensor([29])]
    taken = dealt.taken(places)
    assert taken.sizes == (2, 1)
    assert torch.equal(taken[0][1], dealt.order[places[0]])
    assert taken.order.tolist() == [0, 1, 2]


def test_some_samples_are_of_all_batches_alike() -> None:
    inputs, labels = torch.arange(60.0)[:, None], torch.arange(60) // 20
    x, y = Batches(inputs, labels, 20).spread(12)
    assert x.shape == (12, 1)
    assert bool((x.diff(dim=0) > 0).all())
    assert set(y.tolist()) == {0, 1, 2}
    rows = torch.randperm(60, generator=torch.Generator().manual_seed(0))[:12].sort().values
    assert torch.equal(x, inputs[rows])
    assert all(map(torch.equal, (x, y), Batches(inputs, labels, 7).spread(12)))  # however they are batched
    every = Batches(inputs, labels, 20).spread(1000)
    assert torch.equal(every[0], inputs)
    longer = Batches.from_iterable([(torch.ones(3, 4), labels[:3]), (torch.ones(3, 5), labels[:3])])
    assert longer.spread(4)[0].shape == (3, 4)
