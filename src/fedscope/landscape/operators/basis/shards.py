"""Which of the n coordinates a process keeps, and sums over all of them that do not depend on how many do.

Coordinates are dealt out in parts of equal width; the width depends on n alone. A sum over coordinates is
made part by part, then over the parts in their order, whatever process each part is on: 1, 2 and 4 processes
get the same bits. Vectors are padded with zeros to whole parts.
"""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

_PARTS = 512  # at most, of a small network
_WIDTHS = 64, 1 << 14  # least and most numbers of a part: lines of a cache, and a row that fits a core's


class Whole:
    """All coordinates are here."""

    shared = False

    def __init__(self, n: int) -> None:
        self.n, self.width = n, n
        self.parts = self.mine = range(1)

    def local(self, v: Tensor) -> Tensor:
        """Return this process' coordinates of vectors (…, n)."""
        return v

    def whole(self, v: Tensor) -> Tensor:
        """Return vectors (…, n) of which every process gives its own coordinates."""
        return v

    def total(self, terms: Iterator[Tensor]) -> Tensor:
        """Return the float64 sum of one term for each piece of this process' coordinates, in order."""
        first = next(terms)
        sums = torch.zeros_like(first, dtype=torch.float64)
        sums += first
        for term in terms:
            sums += term
        return sums

    def norm(self, v: Tensor) -> float:
        """Return ‖v‖ of a vector whose local coordinates are given."""
        return float(v.norm())


class Shards(Whole):
    """Every process of a group keeps a stretch of the parts."""

    shared = True

    def __init__(self, n: int, group: dist.ProcessGroup) -> None:
        super().__init__(n)
        self._group, self.ranks, self.rank = group, group.size(), group.rank()
        least, most = _WIDTHS
        self.width = min(most, max(least, 1 << (max(1, n // _PARTS) - 1).bit_length()))
        self.parts = range(-(-n // self.width))
        stretches = torch.arange(len(self.parts)).tensor_split(self.ranks)
        self._counts = [len(stretch) for stretch in stretches]
        first = sum(self._counts[: self.rank])
        self.mine = self.parts[first : first + self._counts[self.rank]]

    def cut(self, v: Tensor) -> list[Tensor]:
        """Return the coordinates of (…, n) that each process keeps, padded."""
        padded = torch.nn.functional.pad(v, (0, len(self.parts) * self.width - self.n))
        return list(padded.split([count * self.width for count in self._counts], dim=-1))

    def local(self, v: Tensor) -> Tensor:
        """Return this process' coordinates of vectors (…, n), padded; a copy."""
        return self.cut(v)[self.rank].clone()

    def whole(self, v: Tensor) -> Tensor:
        """Return vectors (…, n) of which every process gives its own coordinates."""
        longest = max(self._counts) * self.width
        own = torch.nn.functional.pad(v, (0, longest - v.shape[-1])).contiguous()
        found = [torch.empty_like(own) for _ in self._counts]
        dist.all_gather(found, own, group=self._group)
        pieces = [one[..., : count * self.width] for one, count in zip(found, self._counts, strict=True)]
        return torch.cat(pieces, dim=-1)[..., : self.n].contiguous()

    def total(self, terms: Iterator[Tensor]) -> Tensor:
        """Return the float64 sum of one term for each part, in the order of the parts.

        A process without a part gives one term, of zeros.
        """
        own = [term.double() for term in terms]
        all_parts = own[0].new_zeros(len(self.parts), *own[0].shape)
        for part, term in zip(self.mine, own, strict=False):
            all_parts[part] = term
        dist.all_reduce(all_parts, group=self._group)  # of one number and zeros: exact in any order
        return all_parts.sum(0)

    def norm(self, v: Tensor) -> float:
        """Return ‖v‖ of a vector whose local coordinates are given."""
        pieces = v.view(-1, self.width) if len(v) else v.new_zeros(1, 1)
        return float(self.total(piece.double() @ piece.double() for piece in pieces).sqrt())
