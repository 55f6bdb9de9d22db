"""The samples behind a curvature operator: fixed, in a fixed order, with their counts."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedscope.errors import UserError
from fedscope.landscape.loss.streamed import Batch, Streamed, streamed
from fedscope.landscape.loss.trees import Tree, count, joined, leaves, mapped, octets, some, split

SMALLEST = 8  # samples of a batch that others are cut into


class Batches:
    """Pairs (inputs, targets), the same in every pass; the last batch may be smaller.

    An operator needs the same samples in every product, so nothing here shuffles, augments or drops.

    Args:
        inputs: a tensor whose first dimension counts samples; or a tuple, list or dict of such tensors, which
            the model gets as its arguments (:mod:`fedscope.landscape.loss.trees`).
        targets: the same, with the same first dimension; the loss gets it as it is.
        batch_size: samples per batch.
        population: how many samples there are that these were drawn from without replacement, themselves
            included; errors over the data are then those of so finite a population
            (:func:`fedscope.statistics.intervals.finite_population`). None: of an infinite one.

    Raises:
        UserError: no samples, differing lengths, ``batch_size`` < 1, or a population that has not so many.
    """

    def __init__(
        self, inputs: Tree, targets: Tree, batch_size: int = 256, *, population: int | None = None
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        _check_pair(inputs, targets)
        if population is not None and population < count(inputs):
            raise UserError(f"{count(inputs)} samples cannot be drawn from a population of {population}")
        self.population = population
        pairs = zip(split(inputs, batch_size), split(targets, batch_size), strict=True)
        self._pairs: Sequence[Batch] = tuple(pairs)
        self._order: Tensor | None = None

    @classmethod
    def from_iterable(cls, loader: Iterable[object] | Dataset[Any], batch_size: int = 256) -> "Batches":
        """Return the batches of a loader or a data set, the same in every pass.

        An item is a pair (inputs, targets); or a dict, which is both: the model gets it by name and the loss
        whole.

        A ``torch.utils.data.Dataset`` with an index, a ``datasets.Dataset``, or a ``DataLoader`` of one is
        read row by row, in an order of its own: ascending where the loader only shuffles. What exceeds
        256 MiB is read again in every pass, so that it need not fit memory or device; loader workers are not
        used. Anything else (an iterator will do) is run through once, and kept in the order it came.

        Args:
            loader: what to read.
            batch_size: samples per batch of a data set; a loader has its own.

        Raises:
            UserError: no batch, an empty batch, or an item that is neither or whose tensors differ in length.
        """
        found = streamed(loader, _pair, batch_size)
        return cls._of([_pair(item) for item in iter(loader)] if found is None else found)

    @classmethod
    def of(cls, data: "Data", batch_size: int = 256) -> "Batches":
        """Return ``data`` as batches: as they are, of one pair (inputs, targets), or :meth:`from_iterable`.

        A pair's tensors may be NumPy arrays. A tuple of two pairs, or a list, is an iterable of batches.
        """
        if isinstance(data, cls):
            return data
        if isinstance(data, tuple) and len(data) == 2 and not all(map(_is_batch, data)):
            inputs, targets = (_as_tensors(side) for side in data)
            return cls(inputs, targets, batch_size)
        return cls.from_iterable(data, batch_size)

    def dealt(self, least: int, seed: int = 0) -> "Batches":
        """Return the samples dealt at random to ``least`` batches of near-equal size, or as many as here are.

        Then errors over the data that are told by batches do not depend on how the samples were stored. The
        order is the seed's, and :attr:`order` says it. No batch has fewer than 8 samples; batches that cannot
        be joined, of sequences of several lengths, say, are returned as they are. The loss must be a mean
        over samples.
        """
        samples, smallest = self.samples, min(SMALLEST, *self.sizes)
        batches = max(len(self), min(least, samples // smallest))
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
        parts = [part.sort().values for part in order.tensor_split(batches)]
        try:
            dealt = self._at(parts)
        except UserError:
            return self
        return Batches._of(dealt, self.order[torch.cat(parts)], self.population)

    def taken(self, parts: Sequence[Tensor]) -> "Batches":
        """Return batches of the samples at these places (n_b,), counted through all batches in their order.

        Their :attr:`order` is ascending again: what they are is said by the caller's places.

        Raises:
            UserError: the batches cannot be joined, such as those of sequences of several lengths.
        """
        return Batches._of(self._at(parts), None, self.population)

    def spread(self, most: int) -> Batch:
        """Return at most so many samples of all batches alike, as one batch; they are the same every time.

        Samples that lie together may be of one class. Of batches that cannot be joined it is the first.
        """
        drawn = torch.randperm(self.samples, generator=torch.Generator().manual_seed(0))[:most].sort().values
        if isinstance(self._pairs, Streamed):
            return self.taken([drawn])[0]
        within = [drawn[(drawn >= low) & (drawn < high)] - low for low, high in pairwise(self._bounds)]
        each = zip(self, within, strict=True)  # no copy of all samples
        together = _together([(some(x, rows), some(y, rows)) for (x, y), rows in each if len(rows)])
        return together[0] if len(together) == 1 else self[0]

    def _at(self, parts: Sequence[Tensor]) -> Sequence[Batch]:
        if isinstance(self._pairs, Streamed):
            return self._pairs.taken(parts)
        inputs, targets = (joined([pair[side] for pair in self]) for side in (0, 1))
        return tuple((some(inputs, part), some(targets, part)) for part in parts)

    def with_targets(self, targets: Iterable[Tree]) -> "Batches":
        """Return the same batches with other targets, a tree for each, which are kept."""
        if isinstance(self._pairs, Streamed):
            return Batches._of(self._pairs.with_targets(list(targets)), self._order, self.population)
        pairs = ((inputs, other) for (inputs, _), other in zip(self, targets, strict=True))
        return Batches._of(pairs, self._order, self.population)

    def joined(self, most: int) -> Iterator[Batch]:
        """Yield the samples in the same order, small batches joined to such of at most ``most`` samples.

        Batches that cannot be joined, of sequences of several lengths, say, come as they are.
        """
        group: list[Batch] = []
        for pair in self:
            if group and sum(count(inputs) for inputs, _ in (*group, pair)) > most:
                yield from _together(group)
                group = []
            group.append(pair)
        yield from _together(group)

    @classmethod
    def _of(
        cls, pairs: Iterable[Batch], order: Tensor | None = None, population: int | None = None
    ) -> "Batches":
        batches = cls.__new__(cls)
        batches._pairs = pairs if isinstance(pairs, Streamed) else tuple(pairs)
        batches._order, batches.population = order, population
        if not batches._pairs:
            raise UserError("the data has no batches; give at least one sample")
        return batches

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples in each batch."""
        if isinstance(self._pairs, Streamed):
            return self._pairs.sizes
        return tuple(count(inputs) for inputs, _ in self._pairs)

    @property
    def _bounds(self) -> list[int]:
        """The place of each batch's first sample, and the number of all."""
        return [0, *accumulate(self.sizes)]

    @property
    def is_streamed(self) -> bool:
        """Whether they are read again in every pass."""
        return isinstance(self._pairs, Streamed)

    @property
    def samples(self) -> int:
        """Samples in all batches together."""
        return sum(self.sizes)

    @property
    def order(self) -> Tensor:
        """Which of the samples as they were given each one is, (samples,) int64: ascending unless dealt."""
        return torch.arange(self.samples) if self._order is None else self._order

    @cached_property
    def sha256(self) -> str:
        """Hash of all samples, their order and how they are batched."""
        digest = hashlib.sha256(f"{self.sizes}".encode())
        for tensor in (tensor for pair in self for tensor in leaves(pair)):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\0".encode())
            digest.update(octets(tensor))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._pairs)

    def __getitem__(self, b: int) -> Batch:
        return self._pairs[b]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Batches":
        """Return the batches on ``device``; floating tensors in ``dtype``, labels as they are.

        What is read in every pass is moved when it is read.
        """

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)

        return self.mapped(lambda pair: (mapped(moved, pair[0]), mapped(moved, pair[1])))

    def mapped(self, function: Callable[[Batch], Batch]) -> "Batches":
        """Return the batches with ``function`` applied to each; to one that is read in every pass, then."""
        pairs = self._pairs
        found = pairs.mapped(function) if isinstance(pairs, Streamed) else map(function, pairs)
        return Batches._of(found, self._order, self.population)


Data = Batches | Dataset[Any] | Iterable[object]
"""Batches, or what :meth:`Batches.of` makes some of."""


def _together(group: list[Batch]) -> list[Batch]:
    if len(group) == 1:
        return group
    try:
        return [(joined([inputs for inputs, _ in group]), joined([targets for _, targets in group]))]
    except UserError:
        return group


def _is_batch(item: object) -> bool:
    """Say whether an item of a tuple is a batch: a pair, or a dict."""
    return isinstance(item, Mapping) or (isinstance(item, tuple | list) and len(item) == 2)


def _as_tensors(tree: Tree) -> Tree:
    """Return the tree with its NumPy arrays as tensors."""
    if isinstance(tree, np.ndarray):
        return torch.as_tensor(tree)
    if isinstance(tree, Mapping):
        return {name: _as_tensors(item) for name, item in tree.items()}
    return tuple(map(_as_tensors, tree)) if isinstance(tree, tuple | list) else tree


def _pair(item: object) -> Batch:
    if isinstance(item, Mapping):
        item = item, item
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise UserError(f"a batch must be a pair (inputs, targets) or a dict, not {type(item).__name__}")
    _check_pair(item[0], item[1])
    return item[0], item[1]


def _check_pair(inputs: Tree, targets: Tree) -> None:
    if count((inputs, targets)) == 0:
        raise UserError("a batch is empty; give at least one sample")
