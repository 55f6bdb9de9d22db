"""Batches that are read from a data set whenever they are asked for, so that they need not fit memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, default_collate

from fedscope.landscape.loss.trees import Tree, joined, leaves, some

Batch = tuple[Tree, Tree]
HELD = 256 << 20  # bytes up to which a data set is read once and kept
TARGETS = ("label", "labels", "target", "targets", "fine_label", "y")  # columns that a loss needs
_LOOKED_AT, _AT_ONCE = 64, 4  # samples that are read twice, all over the data set


class Streamed(Sequence[Batch]):
    """Batches of the rows ``parts`` of a data set; ``read`` returns a batch of the rows that it is given.

    The batch that was read last is kept, for a caller that takes it part by part.
    """

    def __init__(self, read: Callable[[Tensor], Batch], parts: Sequence[Tensor]) -> None:
        self._read = read
        self.parts = tuple(parts)
        self._last: tuple[int, Batch] | None = None

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, b: Any) -> Any:
        if isinstance(b, slice):
            return Streamed(self._read, self.parts[b])
        b = range(len(self))[b]
        if self._last is None or self._last[0] != b:
            self._last = None  # before the next one is read: both need not fit
            self._last = b, self._read(self.parts[b])
        return self._last[1]

    def __iter__(self) -> Iterator[Batch]:
        return (self[b] for b in range(len(self)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples in each batch."""
        return tuple(map(len, self.parts))

    def taken(self, parts: Sequence[Tensor]) -> "Streamed":
        """Return batches of the samples at these places, counted through all batches in their order."""
        rows = torch.cat(self.parts)
        return Streamed(self._read, [rows[part] for part in parts])

    def with_targets(self, targets: Sequence[Tree]) -> "Streamed":
        """Return the batches with other targets, a tree for each, which are kept."""
        rows, read, every = torch.cat(self.parts), self._read, joined(list(targets))

        def both(places: Tensor) -> Batch:
            return read(rows[places])[0], some(every, places)

        return Streamed(both, list(torch.arange(len(rows)).split(list(self.sizes))))

    def mapped(self, function: Callable[[Batch], Batch]) -> "Streamed":
        """Return the batches with ``function`` applied to each one that is read."""
        read = self._read
        return Streamed(lambda rows: function(read(rows)), self.parts)


def streamed(data: object, pair: Callable[[object], Batch], batch_size: int) -> Sequence[Batch] | None:
    """Return the batches of a map-style data set, or of a loader of one; None for anything else.

    The rows come in ascending order where the loader only shuffles them, else in the order of one draw of its
    sampler. Up to 256 MiB, and rows that are another thing each time they are read (augmented ones), are read
    once and kept.

    Args:
        data: a ``torch.utils.data.Dataset`` or ``DataLoader``, or a ``datasets.Dataset``.
        pair: makes a batch of what the data set's rows are collated to.
        batch_size: of a data set; a loader has its own.
    """
    found = _rows(data, batch_size)
    if found is None:
        return None
    dataset, parts, collate = found

    def read(rows: Tensor) -> Batch:
        return pair(collate(_items(dataset, rows.tolist())))

    batches = Streamed(read, [part for part in parts if len(part)])
    if not len(batches):
        return ()
    few = batches.parts[0][:_AT_ONCE]
    size = sum(tensor.nbytes for tensor in leaves(read(few))) / len(few) * sum(batches.sizes)
    return batches if size > HELD and _steady(read, torch.cat(batches.parts)) else tuple(batches)


def _steady(read: Callable[[Tensor], Batch], rows: Tensor) -> bool:
    """Say whether rows are the same each time they are read.

    One that is flipped or cropped at random can come out the same twice: 64 hardly do.
    """
    places = torch.linspace(0, len(rows) - 1, min(_LOOKED_AT, len(rows))).round().long()
    for few in rows[places].split(_AT_ONCE):
        first, again = ([*leaves(read(few))] for _ in range(2))
        if not all(torch.equal(one, other) for one, other in zip(first, again, strict=True)):
            return False
    return True


def _rows(data: Any, size: int) -> tuple[Any, list[Tensor], Callable[[list[Any]], object]] | None:
    """Return a data set, the rows of each batch, and what collates rows."""
    if isinstance(data, DataLoader):
        if data.batch_sampler is None or not _has_index(data.dataset):
            return None
        return data.dataset, _rows_of(data), data.collate_fn
    if not _has_index(data):
        return None
    if hasattr(data, "with_format") and hasattr(data, "column_names"):  # of Hugging Face
        dataset = data.with_format("torch") if data.format["type"] is None else data
        return dataset, _in_order(data, size), _collated
    return (data, _in_order(data, size), default_collate) if isinstance(data, Dataset) else None


def _rows_of(loader: DataLoader[Any]) -> list[Tensor]:
    """Return the rows of each batch: ascending where the loader shuffles all of them, else as one draw."""
    sampler: Any = loader.sampler
    shuffled = isinstance(sampler, RandomSampler) and not sampler.replacement
    if shuffled and loader.batch_size and not loader.drop_last and sampler.num_samples == _length(loader):
        return _in_order(loader.dataset, loader.batch_size)
    return [torch.tensor(list(rows)) for rows in loader.batch_sampler or ()]


def _length(loader: DataLoader[Any]) -> int:
    return len(cast(Sized, loader.dataset))


def _in_order(dataset: Any, size: int) -> list[Tensor]:
    return list(torch.arange(len(dataset)).split(size))


def _has_index(dataset: object) -> bool:
    sized = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    return sized and not isinstance(dataset, IterableDataset)


def _items(dataset: Any, rows: list[int]) -> list[Any]:
    several = getattr(dataset, "__getitems__", None)
    return list(cast(Iterable[Any], several(rows))) if several else [dataset[row] for row in rows]


def _collated(items: list[Mapping[str, Any]]) -> object:
    """Return rows of named columns: of two, one of them the targets, a pair; else all by name."""
    columns = default_collate(items)
    targets = [name for name in columns if name in TARGETS]
    if len(columns) == 2 and len(targets) == 1:
        (inputs,) = (name for name in columns if name not in targets)
        return columns[inputs], columns[targets[0]]
    return columns
