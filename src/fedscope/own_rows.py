"""Samples as users hold them, arrays, data sets, loaders, streams: training and analysis read them here.

A loader says which rows there are, how they are collated and how many make a batch. Its own draws, which
come from the caller's global generators, are not made: a data set is read row by row, with those generators
set from a key of the row, and set back. What a loader would do otherwise is told in ``DatasetRows.notes``. A
sample is (input, target), or a dict; behind the target may stand the sample's number, which is left out.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import data as torch_data

from fedscope.errors import UserError
from fedscope.streams import key, reseed, seeded
from fedscope.task_loss import TaskLoss

TARGETS = ("label", "labels", "target", "targets", "fine_label", "y")  # columns that a loss needs
NUMBERED = "the third item of each sample, its number, is left out"
DRAWN = "rows are another thing each time they are read: one draw of them, by fedscope's own seed"
UNSEEDED = "rows draw from a generator of their own, which no seed sets: each is read once"
_LOOKED_AT, _AT_ONCE = 64, 4  # samples that are read twice, all over the data set
_OF_CLASSES = (functional.cross_entropy, functional.nll_loss)


@dataclass(frozen=True)
class DatasetRows:
    """A data set by its rows.

    ``parts`` are the rows of each batch, int64. ``random`` says whether rows differ from one reading to the
    next: not; as the generators of torch, NumPy and Python draw, so that a seed repeats them; or otherwise.
    """

    parts: tuple[Tensor, ...]
    items: Callable[[list[int]], list[Any]]
    collate: Callable[[list[Any]], Any]
    notes: tuple[str, ...] = ()
    random: Literal["not", "seeded", "unseeded"] = "not"

    def read(self, rows: Tensor, seeds: Sequence[int] | None = None) -> tuple[Any, Any]:
        """Return the inputs and targets of these rows, (B, …) each or what the data set collates them to.

        Rows that are drawn at random are a function of their ``seeds``; by default one for each row.
        """
        numbers = rows.tolist()
        with seeded(key(0, "own rows")):
            if self.random == "not" and seeds is None:
                items = self.items(numbers)
            else:
                drawn = seeds or [key(0, "own row", 0, row) for row in numbers]
                items = [self._item(row, seed) for row, seed in zip(numbers, drawn, strict=True)]
            return pair(self.collate(items))[0]

    def _item(self, row: int, seed: int) -> Any:
        reseed(seed)
        return self.items([row])[0]


def rows_of(data: Any, batch_size: int) -> DatasetRows | None:
    """Return the rows of a data set, loader, stream (run through once) or list of samples; None of others."""
    rows = _found(data, batch_size)
    if rows is None or not rows.parts:
        return rows
    few = rows.parts[0][:_AT_ONCE]
    with seeded(key(0, "own rows")):
        numbered = pair(rows.collate(rows.items(few.tolist())))[1]
    random = _randomness(rows)
    said = {"not": (), "seeded": (DRAWN,), "unseeded": (UNSEEDED,)}[random]
    notes = (*rows.notes, *([NUMBERED] if numbered else []), *said)
    return DatasetRows(rows.parts, rows.items, rows.collate, notes, random)


def pair(batch: Any) -> tuple[tuple[Any, Any], bool]:
    """Return inputs and targets of a batch, a dict being both; and whether numbers stood behind them."""
    if isinstance(batch, Mapping):
        return (batch, batch), False
    several = isinstance(batch, tuple | list)
    if several and len(batch) == 3 and _are_numbers(batch[2]):
        return (batch[0], batch[1]), True
    if not several or len(batch) != 2:
        found = f"{type(batch).__name__}{f' of {len(batch)}' if several else ''}"
        raise UserError(f"a batch must be a pair (inputs, targets) or a dict, not {found}")
    return (batch[0], batch[1]), False


def arrays(data: Any) -> tuple[tuple[Tensor, Tensor], bool] | None:
    """Return (inputs, targets) of one tensor or array each, and whether numbers followed them; or None."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        return None
    if not all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in data):
        return None
    (inputs, targets), numbered = pair([torch.as_tensor(part) for part in data])
    return (inputs, targets), numbered


def class_numbers(targets: Tensor) -> Tensor:
    """Return whole-numbered targets as class numbers: int64, (N, 1) as (N,); others as they are."""
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        return targets
    return (targets[:, 0] if targets.ndim == 2 and targets.shape[1] == 1 else targets).long()


def takes_classes(loss: object) -> bool:
    loss = getattr(loss, "func", loss)  # of functools.partial
    if isinstance(loss, TaskLoss):
        return loss.own is None
    return isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) or loss in _OF_CLASSES


def flows(data: Iterable[Any]) -> list[Any]:
    """Return what an iterable yields, its draws from the global generators set by a key and set back."""
    with seeded(key(0, "own rows")):
        return list(data)


def _found(data: Any, size: int) -> DatasetRows | None:
    if isinstance(data, torch_data.DataLoader):
        return _of_loader(data)
    if isinstance(data, torch_data.IterableDataset):
        return _of_stream(data, size, _collated if hasattr(data, "column_names") else _together)
    hugging_face = hasattr(data, "with_format") and hasattr(data, "column_names")
    known = hugging_face or isinstance(data, torch_data.Dataset) or _are_samples(data)
    if not known or not _has_index(data):
        return None
    if hugging_face and data.format["type"] is None:
        data = data.with_format("torch")
    return DatasetRows(
        _cut(torch.arange(len(data)), size), _getter(data), _collated if hugging_face else _together
    )


def _of_loader(loader: torch_data.DataLoader[Any]) -> DatasetRows | None:
    data, batches = loader.dataset, loader.batch_sampler
    collate = _together if loader.collate_fn is torch_data.default_collate else loader.collate_fn
    size = loader.batch_size
    if isinstance(data, torch_data.IterableDataset) and size:
        stream = _of_stream(data, size, collate)
        count = sum(map(len, stream.parts))
        left = count % size if loader.drop_last else 0
        return DatasetRows(stream.parts, stream.items, collate, _left_out(left, count))
    if batches is None or not _has_index(data):
        return None
    count = len(data)  # type: ignore[arg-type]
    if type(batches) is torch_data.BatchSampler:
        rows, notes = _chosen(batches.sampler, count, data)
        if batches.drop_last:
            notes += _left_out(len(rows) % batches.batch_size, len(rows))
        parts = _cut(rows, batches.batch_size)
    else:
        drawn = [torch.tensor(list(batch), dtype=torch.int64) for batch in _drawn(batches, data)]
        parts = tuple(part for part in drawn if len(part))
        notes = _as_drawn(torch.cat(drawn) if drawn else torch.empty(0, dtype=torch.int64), count)
    return DatasetRows(parts, _getter(data), collate, notes)


def _left_out(left: int, count: int) -> tuple[str, ...]:
    told = f"the loader would leave out {left} of {count} rows (drop_last); all {count} are read"
    return (told,) * bool(left)


def _chosen(sampler: Any, count: int, data: object) -> tuple[Tensor, tuple[str, ...]]:
    if isinstance(sampler, torch_data.SequentialSampler):
        return torch.arange(count), ()
    if isinstance(sampler, torch_data.SubsetRandomSampler):
        return torch.tensor(sorted(sampler.indices), dtype=torch.int64), ()
    if isinstance(sampler, torch_data.RandomSampler):
        again = sampler.replacement or sampler.num_samples != count
        note = f"the loader draws {sampler.num_samples} of {count} rows anew each time; each is read once"
        return torch.arange(count), (note,) * again
    if isinstance(sampler, torch_data.WeightedRandomSampler):
        rows = torch.as_tensor(sampler.weights).nonzero()[:, 0]
        which = f"the {len(rows)} of {count} rows whose weight is not 0" if len(rows) < count else "each row"
        return rows, (f"the loader draws rows by weights; {which} is read once, and all count alike",)
    rows = torch.tensor(list(_drawn(sampler, data)), dtype=torch.int64)
    return rows.sort().values, _as_drawn(rows, count)


def _as_drawn(rows: Tensor, count: int) -> tuple[str, ...]:
    different = len(rows.unique())
    if different == len(rows) == count:
        return ()
    repeated = f", {len(rows)} times in all" if different < len(rows) else ""
    return (f"the loader's sampler names {different} of {count} rows{repeated}; these are read",)


def _drawn(sampler: Iterable[Any], data: object) -> list[Any]:
    """Return one draw of a sampler; its own generator stays where it is."""
    with seeded(key(0, "own sampler")):
        return list(copy.deepcopy(sampler, {id(data): data}))


def _of_stream(
    data: torch_data.IterableDataset[Any], size: int, collate: Callable[[list[Any]], Any]
) -> DatasetRows:
    items = flows(data)
    return DatasetRows(_cut(torch.arange(len(items)), size), _getter(items), collate)


def _cut(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    return tuple(part for part in rows.split(size) if len(part))


def _getter(data: Any) -> Callable[[list[int]], list[Any]]:
    several = getattr(data, "__getitems__", None)
    return lambda rows: list(several(rows)) if several else [data[row] for row in rows]


def _has_index(data: object) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _are_samples(data: object) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    if not isinstance(first, tuple) or len(first) not in (2, 3):
        return False
    scalar = isinstance(first[1], int | float | Tensor | np.ndarray | np.generic) and np.ndim(first[1]) == 0
    return scalar and (isinstance(first[0], Mapping) or np.ndim(first[0]) > 0)


def _are_numbers(third: object) -> bool:
    """Say whether these are the samples' own numbers: whole, and no two alike."""
    third = torch.as_tensor(third) if isinstance(third, np.ndarray) else third
    if not isinstance(third, Tensor) or third.ndim != 1:
        return False
    whole = not third.is_floating_point() and third.dtype != torch.bool
    return whole and len(third.unique()) == len(third)


def _together(items: Sequence[Any]) -> Any:
    """Return samples as a batch; a list of numbers is a vector, and not as many inputs as for PyTorch."""
    return torch_data.default_collate([_with_vectors(item) for item in items])


def _with_vectors(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {name: _as_tensor(part) for name, part in item.items()}
    return tuple(map(_as_tensor, item)) if type(item) in (tuple, list) else item


def _as_tensor(part: Any) -> Any:
    plain = isinstance(part, list) and part and all(isinstance(number, int | float) for number in part)
    return torch.tensor(part) if plain else part


def _randomness(rows: DatasetRows) -> Literal["not", "seeded", "unseeded"]:
    """Say whether rows differ from one reading to the next, and whether a seed repeats them.

    One that is flipped or cropped at random can come out the same twice: 64 hardly do.
    """
    every = torch.cat(rows.parts)
    places = torch.linspace(0, len(every) - 1, min(_LOOKED_AT, len(every))).round().long()
    for few in every[places].split(_AT_ONCE):
        seeds = range(len(few))
        first, other = (rows.read(few, [start + seed for seed in seeds]) for start in (1, 100))
        if not _equal(first, other):
            return "seeded" if _equal(first, rows.read(few, [1 + seed for seed in seeds])) else "unseeded"
    return "not"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape == other.shape and bool(((one == other) | (one != one)).all())
    if isinstance(one, Mapping):
        return all(_equal(part, other[name]) for name, part in one.items())
    if isinstance(one, tuple | list):
        return all(map(_equal, one, other))
    return bool(one == other)


def _collated(items: list[Mapping[str, Any]]) -> object:
    """Return rows of named columns: of two, one of them the targets, a pair; else all by name."""
    columns = _together(items)
    targets = [name for name in columns if name in TARGETS]
    if len(columns) == 2 and len(targets) == 1:
        (inputs,) = (name for name in columns if name not in targets)
        return columns[inputs], columns[targets[0]]
    return columns
