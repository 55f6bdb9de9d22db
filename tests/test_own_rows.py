"""Users' data sets, loaders and streams: read row by row, by fedscope's own seed, and told."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, nll_loss
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from fedscope import own_rows
from fedscope.errors import UserError
from fedscope.own_rows import DatasetRows

X, Y = torch.arange(46.0).view(23, 2), torch.arange(23) % 4
DATA = TensorDataset(X, Y)


def found(data: Any, size: int = 8) -> DatasetRows:
    rows = own_rows.rows_of(data, size)
    assert rows is not None
    return rows


def numbers(rows: DatasetRows) -> list[int]:
    """Return which samples are read, by their inputs."""
    return [int(x[0]) // 2 for part in rows.parts for x in rows.read(part)[0]]


class Stateful(Sampler[int]):
    """A sampler with a generator of its own, which a draw moves on."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(23, generator=self.generator)[:9].tolist())


EVERY = list(range(23))
CASES: list[tuple[str, Callable[[], DataLoader[Any]], list[int] | None, str]] = [
    ("plain", lambda: DataLoader(DATA, 8), EVERY, ""),
    ("shuffled", lambda: DataLoader(DATA, 8, shuffle=True), EVERY, ""),
    ("dropped", lambda: DataLoader(DATA, 8, shuffle=True, drop_last=True), EVERY,
     "the loader would leave out 7 of 23 rows (drop_last); all 23 are read"),
    ("tiny", lambda: DataLoader(DATA, 50, drop_last=True), EVERY, "leave out 23 of 23 rows"),
    ("weights", lambda: DataLoader(DATA, 8, sampler=WeightedRandomSampler([1.0] * 23, 23)), EVERY,
     "draws rows by weights; each row is read once, and all count alike"),
    ("no weight", lambda: DataLoader(DATA, 8, sampler=WeightedRandomSampler([0, 1.0, 3] + [0] * 20, 40)),
     [1, 2], "the 2 of 23 rows whose weight is not 0"),
    ("subset", lambda: DataLoader(DATA, 2, sampler=SubsetRandomSampler([9, 4, 20])), [4, 9, 20], ""),
    ("bootstrap", lambda: DataLoader(DATA, 8, sampler=RandomSampler(DATA, replacement=True)), EVERY,
     "draws 23 of 23 rows anew each time; each is read once"),
    ("some", lambda: DataLoader(DATA, 8, sampler=RandomSampler(DATA, num_samples=5)), EVERY, "draws 5 of 23"),
    ("own sampler", lambda: DataLoader(DATA, 8, sampler=Stateful()), None, "names 9 of 23 rows; these are"),
    ("twice", lambda: DataLoader(DATA, 8, sampler=[3, 1, 3]), [1, 3, 3],
     "names 2 of 23 rows, 3 times in all; these are read"),
    ("own batches", lambda: DataLoader(DATA, batch_sampler=[[5, 6], [1]]), [5, 6, 1], "names 3 of 23 rows"),
    ("batch sampler",
     lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 5, drop_last=True)),
     EVERY, "leave out 3 of 23 rows"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "expected", "note"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_loader_says_which_rows_and_draws_none_of_them(
    make: Callable[[], DataLoader[Any]], expected: list[int] | None, note: str
) -> None:
    loader = make()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = found(loader)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(12)
    again = found(loader)
    assert numbers(first) == numbers(again) == (numbers(first) if expected is None else expected)
    assert first.notes == again.notes
    assert note in " ".join(first.notes)
    assert bool(note) == bool(first.notes)


def test_an_iterable_loader_leaves_nothing_out() -> None:
    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return iter(zip(X, Y, strict=True))

    for data in (Stream(), DataLoader(Stream(), 8)):
        rows = found(data)
        assert (numbers(rows), rows.notes) == (EVERY, ())
        assert [len(part) for part in rows.parts] == [8, 8, 7]
    assert (
        found(DataLoader(Stream(), 8, drop_last=True)).notes
        == found(DataLoader(DATA, 8, drop_last=True)).notes
    )


class Noisy(Dataset[tuple[Tensor, int]]):
    """Rows with noise of three generators, or of one that no seed sets."""

    def __init__(self, own: np.random.Generator | None = None) -> None:
        self.own = own

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        if self.own is not None:
            return X[row] + float(self.own.normal()), int(Y[row])
        return X[row] + torch.randn(2) + np.random.normal() + random.random(), int(Y[row])


def test_random_rows_are_a_function_of_their_seeds_alone() -> None:
    rows = found(Noisy())
    assert rows.random == "seeded"
    assert own_rows.DRAWN in rows.notes
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    before = torch.rand(3), np.random.rand(), random.random()
    torch.manual_seed(0), np.random.seed(0), random.seed(0)
    whole = rows.read(torch.arange(23))[0]
    alone = torch.cat([rows.read(torch.tensor([row]))[0] for row in reversed(range(23))]).flip(0)
    assert torch.equal(whole, alone)
    assert not torch.equal(whole, X)
    after = torch.rand(3), np.random.rand(), random.random()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    seeds = list(range(100, 123))
    other = rows.read(torch.arange(23), seeds)[0]
    assert torch.equal(other, rows.read(torch.arange(23), seeds)[0])
    assert bool(((other - whole).abs() > 0).all())


def test_rows_that_no_seed_repeats_are_told() -> None:
    rows = found(Noisy(np.random.default_rng()))
    assert (rows.random, rows.notes) == ("unseeded", (own_rows.UNSEEDED,))
    assert found(DATA).random == "not"


def test_a_samples_own_number_is_left_out_and_anything_else_is_refused() -> None:
    numbered = found(TensorDataset(X, Y, torch.arange(23) + 5))
    assert numbered.notes == (own_rows.NUMBERED,)
    inputs, targets = numbered.read(torch.tensor([4, 2]))
    assert torch.equal(inputs, X[[4, 2]])
    assert torch.equal(targets, Y[[4, 2]])
    for third in (torch.ones(23, dtype=torch.int64), torch.rand(23), torch.arange(23) % 2 == 0):
        with pytest.raises(UserError, match=r"a pair .inputs, targets. or a dict, not (list|tuple) of 3"):
            own_rows.rows_of(TensorDataset(X, Y, third), 8)
    whole = own_rows.arrays((X.numpy(), Y.numpy(), np.arange(23)))
    assert whole is not None
    assert (torch.equal(whole[0][0], X), whole[1]) == (True, True)


def test_lists_of_numbers_are_vectors_and_a_list_of_samples_is_a_data_set() -> None:
    rows = found([(row.tolist(), int(label)) for row, label in zip(X, Y, strict=True)])
    inputs, targets = rows.read(torch.arange(23))
    assert torch.equal(inputs, X)
    assert torch.equal(targets, Y)
    assert own_rows.rows_of([(X, Y), (X, Y)], 8) is None  # batches, or clients


def test_a_loaders_own_collate_gets_the_samples_as_they_are() -> None:
    def collate(items: list[Any]) -> tuple[Tensor, Tensor]:
        assert all(type(tokens) is list for tokens, _ in items)
        return torch.tensor([tokens for tokens, _ in items]), torch.tensor([label for _, label in items])

    samples = [([row, row + 1], row % 3) for row in range(6)]
    rows = found(DataLoader(samples, 4, collate_fn=collate))  # type: ignore[arg-type]
    assert rows.read(torch.tensor([2]))[0].tolist() == [[2, 3]]


def test_class_numbers_are_squeezed_and_regression_targets_are_not() -> None:
    for kind in (torch.uint8, torch.int8, torch.int32, torch.int64):
        for labels in (Y.to(kind), Y.to(kind)[:, None]):
            assert torch.equal(own_rows.class_numbers(labels), Y)
    for other in (X[:, :1], Y.bool()[:, None], X.double()):
        assert own_rows.class_numbers(other) is other
    assert own_rows.class_numbers(torch.zeros(3, 4, 4, dtype=torch.int32)).shape == (3, 4, 4)


def test_which_losses_take_class_numbers() -> None:
    losses = (cross_entropy, nll_loss, nn.CrossEntropyLoss(), partial(cross_entropy, label_smoothing=0.1))
    assert all(map(own_rows.takes_classes, losses))
    assert not any(map(own_rows.takes_classes, (mse_loss, nn.MSELoss(), lambda x, y: cross_entropy(x, y))))
