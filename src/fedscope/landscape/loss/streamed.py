"""Batches that are read from a data set whenever they are asked for, so that they need not fit memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from fedscope.landscape.loss.trees import Tree, joined, leaves, some
from fedscope.own_rows import DatasetRows

Batch = tuple[Tree, Tree]
HELD = 256 << 20  # bytes up to which a data set is read once and kept
_AT_ONCE = 4  # samples by whose size that of all is told


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
        return tuple(map(len, self.parts))

    def taken(self, parts: Sequence[Tensor]) -> "Streamed":
        """Return batches of the samples at these places, counted through all batches in their order."""
        rows = torch.cat(self.parts)
        return Streamed(self._read, [rows[part] for part in parts])

    def with_targets(self, targets: Sequence[Tree]) -> "Streamed":
        rows, read, every = torch.cat(self.parts), self._read, joined(list(targets))

        def both(places: Tensor) -> Batch:
            return read(rows[places])[0], some(every, places)

        return Streamed(both, list(torch.arange(len(rows)).split(list(self.sizes))))

    def mapped(self, function: Callable[[Batch], Batch]) -> "Streamed":
        read = self._read
        return Streamed(lambda rows: function(read(rows)), self.parts)


def streamed(rows: DatasetRows, checked: Callable[[Batch], Batch]) -> Sequence[Batch]:
    """Return the batches of a data set's rows.

    Up to 256 MiB, and rows that are another thing each time they are read (augmented ones), are read once and
    kept. ``checked`` refuses a batch.
    """
    batches = Streamed(lambda part: checked(rows.read(part)), rows.parts)
    if not len(batches):
        return ()
    few = batches.parts[0][:_AT_ONCE]
    size = sum(tensor.nbytes for tensor in leaves(checked(rows.read(few)))) / len(few) * sum(batches.sizes)
    return batches if size > HELD and rows.random == "not" else tuple(batches)
