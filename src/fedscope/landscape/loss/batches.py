"""The samples behind a curvature operator: fixed, in a fixed order, with their counts."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fedscope import own_rows
from fedscope.errors import UserError
from fedscope.landscape.loss.streamed import Batch, Streamed, streamed
from fedscope.landscape.loss.trees import Tree, count, joined, leaves, mapped, octets, some, split
from fedscope.own_rows import NUMBERED, class_numbers, takes_classes

_LOG = logging.getLogger("fedscope")
SMALLEST = 8  # samples of a batch that others are cut into


class Batches:
    """Pairs (inputs, targets), the same in every pass; the last batch may be smaller.

    An operator needs the same samples in every product, so nothing here shuffles, augments or drops.
    ``notes`` has a line for whatever the loader that they were read of would do otherwise.

    Args:
        inputs: a tensor whose first dimension counts samples; or a tuple, list or dict of such tensors, which
            the model gets as its arguments (:mod:`fedscope.landscape.loss.trees`).
        targets: the same, with the same first dimension; the loss gets it as it is.
        batch_size: samples per batch.
        population: how many samples there are that these were drawn from without replacement, themselves
            included; errors over the data are then those of so finite a population
            (:func:`fedscope.statistics.standard_errors.finite_population`). None: of an infinite one.

    Raises:
        UserError: no samples, differing lengths, ``batch_size`` < 1, or a population that has not so many.
    """

    def __init__(
        self, inputs: Tree, targets: Tree, batch_size: int = 256, *, population: int | None = None
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        _checked((inputs, targets))
        if population is not None and population < count(inputs):
            raise UserError(f"{count(inputs)} samples cannot be drawn from a population of {population}")
        self.population = population
        pairs = zip(split(inputs, batch_size), split(targets, batch_size), strict=True)
        self._pairs: Sequence[Batch] = tuple(pairs)
        self._order: Tensor | None = None
        self.notes: tuple[str, ...] = ()

    @classmethod
    def from_iterable(cls, loader: Iterable[object] | Dataset[Any], batch_size: int = 256) -> "Batches":
        """Return :meth:`of` a loader, a data set, or any iterable of batches."""
        return cls.of(loader, batch_size)

    @classmethod
    def of(
        cls, data: "Data", batch_size: int = 256, *, loss: object = None, quiet: bool = False
    ) -> "Batches":
        """Return ``data`` as batches, the same in every pass: those of :class:`Batches` as they are.

        An item is a pair (inputs, targets); or a dict, which is both: the model gets it by name and the loss
        whole. One pair of tensors or NumPy arrays is cut into batches. A data set, a loader or a list of
        samples is read row by row (:mod:`fedscope.own_rows`), in every pass where it exceeds 256 MiB. Any
        other iterable yields batches, or data sets, is run through once, and kept.

        Args:
            data: what to read.
            batch_size: samples per batch of a pair or data set; a loader has its own.
            loss: that it is for. Of cross-entropy whole-numbered targets (N,) or (N, 1) become class numbers.
            quiet: leave what a loader would do otherwise to :attr:`notes`, and do not log it.

        Raises:
            UserError: no batch, an empty one, or an item that is neither or whose tensors differ in length.
        """
        found = data if isinstance(data, cls) else cls._read(data, batch_size)
        if found is not data and not quiet:
            for note in found.notes:
                _LOG.warning(note)
        return found._classified() if takes_classes(loss) else found

    @classmethod
    def _read(cls, data: Any, batch_size: int) -> "Batches":
        if whole := own_rows.arrays(data):
            found = cls(*whole[0], batch_size=batch_size)
            found.notes = (NUMBERED,) * whole[1]
            return found
        if isinstance(data, tuple) and len(data) == 2 and not all(map(_is_batch, data)):
            return cls(_as_tensors(data[0]), _as_tensors(data[1]), batch_size)
        rows = own_rows.rows_of(data, batch_size)
        if rows is not None:
            return cls._of(streamed(rows, _checked), rows.notes)
        batches, notes = list[Batch](), list[str]()
        for place, item in enumerate(own_rows.flows(data)):
            part = own_rows.rows_of(item, batch_size)  # of one client, where the data come divided
            if part is None:
                batch, numbered = own_rows.pair(item)
                batches.append(_checked(batch, place))
                notes += [NUMBERED] * numbered
            elif not part.parts:
                raise UserError(f"data set {place} is empty; give at least one sample, or leave it out")
            else:
                batches += streamed(part, _checked)
                notes += [f"data set {place}: {note}" for note in part.notes]
        return cls._of(batches, tuple(dict.fromkeys(notes)))

    def _classified(self) -> "Batches":
        def classified(batch: Batch) -> Batch:
            return batch[0], class_numbers(batch[1]) if isinstance(batch[1], Tensor) else batch[1]

        first = self[0]
        return self if classified(first)[1] is first[1] else self.mapped(classified)

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
        return self._as(dealt, self.order[torch.cat(parts)])

    def taken(self, parts: Sequence[Tensor]) -> "Batches":
        """Return batches of the samples at these places (n_b,), counted through all batches in their order.

        Their :attr:`order` is ascending again: what they are is said by the caller's places.

        Raises:
            UserError: the batches cannot be joined, such as those of sequences of several lengths.
        """
        return self._as(self._at(parts), None)

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
            return self._as(self._pairs.with_targets(list(targets)), self._order)
        pairs = ((inputs, other) for (inputs, _), other in zip(self, targets, strict=True))
        return self._as(pairs, self._order)

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
    def _of(cls, pairs: Iterable[Batch], notes: tuple[str, ...]) -> "Batches":
        batches = cls.__new__(cls)
        batches._pairs = pairs if isinstance(pairs, Streamed) else tuple(pairs)
        batches._order, batches.population, batches.notes = None, None, notes
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
        return self._as(found, self._order)

    def _as(self, pairs: Iterable[Batch], order: Tensor | None) -> "Batches":
        found = Batches._of(pairs, self.notes)
        found._order, found.population = order, self.population
        return found


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
    return isinstance(item, Mapping) or (isinstance(item, tuple | list) and len(item) == 2)


def _as_tensors(tree: Tree) -> Tree:
    if isinstance(tree, np.ndarray):
        return torch.as_tensor(tree)
    if isinstance(tree, Mapping):
        return {name: _as_tensors(item) for name, item in tree.items()}
    return tuple(map(_as_tensors, tree)) if isinstance(tree, tuple | list) else tree


def _checked(batch: Batch, place: int | None = None) -> Batch:
    if count(batch) == 0:
        which = "a batch" if place is None else f"batch {place}"
        raise UserError(f"{which} is empty; give at least one sample, or leave it out")
    return batch
