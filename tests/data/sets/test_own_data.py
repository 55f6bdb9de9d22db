"""Data of the user's own, as training reads them: the same samples in whatever form, clients by number."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from fedscope.data.augment import AS_THEY_ARE
from fedscope.data.reading.anew import Anew
from fedscope.data.sets import own_data
from fedscope.errors import UserError

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3
CURVE = X @ torch.tensor([[1.0], [2.0], [-1.0]])


class Flow(IterableDataset[tuple[Tensor, Tensor]]):
    """The samples one after the other."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y[:, None], strict=True))


class Jittered(Dataset[tuple[Tensor, Tensor]]):
    """Rows that are shifted at random, and their targets as far."""

    def __init__(self, rows: int = 40, own: np.random.Generator | None = None) -> None:
        self.rows, self.own = rows, own

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        shift = torch.rand(()) if self.own is None else torch.tensor(self.own.random(), dtype=torch.float32)
        return X[row] + shift, CURVE[row] + shift


def _square(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module whose factory ``made`` returns what is put into its ``given``."""
    module = ModuleType("own_forms")
    module.__file__ = __file__
    module.made, module.square = lambda: module.given, _square  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_forms", module)
    own_data.forget()
    yield module
    own_data.forget()


def _load(module: Any, given: Any, loss: str | None = None) -> Any:
    module.given = given
    own_data.forget()
    return own_data.load("own_forms:made", loss=loss)


FORMS: dict[str, Any] = {
    "arrays": (X.numpy(), Y.numpy()),
    "columns": (X, Y[:, None]),
    "int32": (X, Y.int()),
    "numbers": (X, Y, torch.arange(40)),
    "data set": TensorDataset(X, Y.byte()[:, None]),
    "numbered": TensorDataset(X, Y, torch.arange(40)),
    "samples": [(row.numpy(), int(label)) for row, label in zip(X, Y, strict=True)],
    "loader": DataLoader(TensorDataset(X, Y[:, None]), 16, shuffle=True, drop_last=True),
    "tiny": DataLoader(TensorDataset(X, Y), 100, drop_last=True),
    "stream": Flow(),
    "batches of a stream": DataLoader(Flow(), 7),
    "batches": DataLoader([(X[:30], Y[:30]), (X[30:], Y[30:])], batch_size=None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("form", FORMS)
def test_one_data_set_is_the_same_in_whatever_form(made: Any, form: str) -> None:
    expected, found = _load(made, {"train": (X, Y), "test": (X[:5], Y[:5])}), None
    found = _load(made, {"train": FORMS[form], "test": (X[:5], Y[:5])})
    assert found.fingerprint == expected.fingerprint
    assert torch.equal(found.train.images, X)
    assert torch.equal(found.train.labels, Y)


def test_clients_keep_all_their_rows_and_one_line_says_what_loaders_would_drop(made: Any) -> None:
    sizes = (15, 4, 21)
    parts = zip(X.split(sizes), Y.split(sizes), strict=True)
    loaders = [DataLoader(TensorDataset(x, y), 10, shuffle=True, drop_last=True) for x, y in parts]
    found = _load(made, {"train": loaders, "test": (X[:5], Y[:5])})
    assert torch.bincount(found.train.clients).tolist() == list(sizes)
    assert torch.equal(found.train.images, X)
    assert found.note == (
        "client 0: the loader would leave out 5 of 15 rows (drop_last); all 15 are read "
        "(and so for 3 of 3 clients)"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([(X, Y), (X[:0], Y[:0])], "client 1: there are no samples; leave it out"),
        ([(X, Y), TensorDataset(X[:0], Y[:0])], "client 1: there are no samples"),
        ([(X, Y), (X, Y[:9])], "client 1: there are 40 inputs and 9 targets"),
        ([], "it is empty"),
        ((X, CURVE), "name its loss with --loss MODULE:FUNCTION"),
        ((X, Y - 1), "targets are class numbers from 0"),
        (TensorDataset(X, Y, CURVE), "a pair (inputs, targets) or a dict"),
        (TensorDataset(X), "a pair (inputs, targets) or a dict"),
        ({"train": (X, Y), "dev": (X, Y)}, "it takes train, and test"),
    ],
)
def test_what_is_refused(made: Any, given: Any, said: str) -> None:
    with pytest.raises(UserError) as refused:
        _load(made, given)
    assert said in str(refused.value)
    assert "own_forms:made" in str(refused.value)


def test_targets_of_another_loss_are_what_it_takes(made: Any) -> None:
    found = _load(made, {"train": (X, CURVE.double()), "test": (X[:5], CURVE[:5])}, "own_forms:square")
    assert torch.equal(found.train.wanted, CURVE)
    assert found.train.labels.unique().tolist() == [0]
    loss = found.train.task_loss
    outputs = torch.zeros(40, 1)
    assert torch.equal(loss(outputs, CURVE), CURVE.square().mean())
    assert torch.allclose(loss.total(outputs, CURVE), CURVE.square().sum())
    assert torch.allclose(loss.each(outputs, CURVE).sum(), CURVE.square().sum())
    assert loss.right(outputs, CURVE).isnan().all()
    kept = _load(made, {"train": (X, Y), "test": (X[:5], Y[:5])}, "own_forms:square")
    assert (kept.train.targets, torch.equal(kept.train.wanted, Y)) == (None, True)
    assert torch.equal(kept.train.task_loss.right(torch.eye(3)[Y], Y), torch.ones(40))


def test_random_samples_are_drawn_anew_with_their_targets(made: Any) -> None:
    given = [Jittered(), (X[:6], CURVE[:6]), Jittered(9)]
    found = _load(made, {"train": given, "test": (X[:5], CURVE[:5])}, "own_forms:square")
    assert "drawn anew in every epoch" in found.note
    store, owners = found.train.images, found.train.clients
    assert isinstance(store, Anew)
    twice = _load(made, {"train": given, "test": (X[:5], CURVE[:5])}, "own_forms:square").train.images
    assert torch.equal(twice.kept, store.kept)
    rows = torch.tensor([54, 3, 42, 3, 0])
    seeds = torch.tensor([7, 8, 9, 9, 10])
    inputs, targets = store.fetch(rows, seeds)
    clean = torch.cat([X, X[:6], X[:9]])[rows]
    shifts = inputs - clean
    assert torch.allclose(shifts, shifts[:, :1].expand(-1, 3), atol=1e-6)
    assert torch.allclose(targets - torch.cat([CURVE, CURVE[:6], CURVE[:9]])[rows], shifts[:, :1], atol=1e-5)
    assert shifts[2].abs().max() == 0  # of arrays
    assert owners[rows].tolist() == [2, 0, 1, 0, 0]
    assert not torch.equal(inputs[1], inputs[3])  # one row by two seeds
    again = [store.fetch(rows[[place]], seeds[[place]])[0][0] for place in range(5)]
    assert torch.equal(torch.stack(again), inputs)
    batch = found.train.batch(AS_THEY_ARE, rows[None], torch.empty(0, 1, 5))
    assert torch.equal(batch[0], store.kept[rows])
    part = found.train.take(torch.tensor([54, 3]))
    assert torch.equal(part.images.fetch(torch.tensor([1, 0]), seeds[[1, 0]])[0], inputs[[1, 0]])


def test_rows_that_no_seed_repeats_are_read_once_and_told(made: Any) -> None:
    data = {"train": Jittered(own=np.random.default_rng()), "test": (X[:5], CURVE[:5])}
    found = _load(made, data, "own_forms:square")
    assert isinstance(found.train.images, Tensor)
    assert "no seed sets: each is read once" in found.note
