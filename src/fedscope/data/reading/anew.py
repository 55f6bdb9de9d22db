"""Inputs of samples that are drawn at random each time they are read: anew in training, once for the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Reader = Callable[[Tensor, list[int]], tuple[Tensor, Tensor]]  # rows (B,), a seed each → inputs, targets


@dataclass(frozen=True)
class Anew:
    """Samples, each of which is a function of a seed; and one draw of them, ``kept``.

    Indexing with rows gives the store of those samples. Sample i is row ``places[i, 1]`` of what
    ``readers[places[i, 0]]`` reads.
    """

    kept: Tensor  # (N, …)
    readers: tuple[Reader, ...]
    places: Tensor  # (N, 2) int64

    @property
    def shape(self) -> torch.Size:
        return self.kept.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.kept.dtype

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, rows: Tensor) -> "Anew":
        return Anew(self.kept[rows.cpu()], self.readers, self.places[rows.cpu()])

    @classmethod
    def joined(cls, parts: Sequence["Tensor | Anew"], targets: Sequence[Tensor]) -> "Anew":
        """Return the samples of several stores, one after the other; those of a tensor have ``targets``."""
        readers, places = list[Reader](), list[Tensor]()
        for part, wanted in zip(parts, targets, strict=True):
            if isinstance(part, Tensor):
                numbers = torch.arange(len(part))
                places.append(torch.stack([torch.full_like(numbers, len(readers)), numbers], 1))
                readers.append(_fixed(part, wanted))
            else:
                places.append(part.places + torch.tensor([len(readers), 0]))
                readers += part.readers
        kept = torch.cat([part if isinstance(part, Tensor) else part.kept for part in parts])
        return cls(kept, tuple(readers), torch.cat(places))

    def once(self, rows: Tensor | None) -> Tensor:
        """Return the inputs (B, …) of the draw that is kept, of ``rows`` (B,) on their device."""
        return self.kept if rows is None else self.kept[rows.cpu()].to(rows.device)

    def fetch(self, rows: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (B, …) and targets (B, …) of ``rows`` (B,), as their ``seeds`` (B,) draw them."""
        places, drawn = self.places[rows.cpu()], seeds.cpu()
        order, parts = list[Tensor](), list[tuple[Tensor, Tensor]]()
        for source in places[:, 0].unique().tolist():
            own = (places[:, 0] == source).nonzero()[:, 0]
            order.append(own)
            parts.append(self.readers[source](places[own, 1], drawn[own].tolist()))
        back = torch.cat(order).argsort()
        inputs, targets = (torch.cat(side)[back].to(rows.device) for side in zip(*parts, strict=True))
        return inputs, targets


def _fixed(inputs: Tensor, targets: Tensor) -> Reader:
    return lambda rows, _: (inputs[rows], targets[rows])
