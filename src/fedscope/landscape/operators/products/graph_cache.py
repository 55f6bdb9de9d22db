"""How a pass over the data is cut into autograd graphs, and which of them are kept for the next pass.

A product with A_b needs a graph (two thirds of the work is then still to do; a kept graph saves the rest).
A graph's memory is f + s·n for n samples, measured on two small graphs: what it keeps beside the network's
weights, and what it consists of, such as a gradient. Batches are cut so that s·n stays near 512 MiB, where it
was as fast as any on a CPU, or an eighth of a GPU's memory, where small graphs wait for their launches; as
many as the budget allows are kept.

How batches are cut depends on the network, the batches, ``memory`` and the device's size alone, never on what
happens to be free: the same inputs give the same bits.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree, leaves, slices, some

Graph = tuple[Tensor, ...]
"""The tensors of some samples, with their graphs, that every product begins at."""
Build = Callable[[Tree, Tree], tuple[Graph, Tensor]]
"""(inputs, targets) ↦ the graph, and the samples' mean loss, a scalar without a graph."""

_WORKING = 1 << 29  # bytes, on a CPU
_JOINED = 1 << 25  # of the samples of several small batches: larger graphs are no faster on a CPU
_COPIED = 1 << 26  # of all samples, which joining copies
_TOGETHER = 128  # samples: more are no faster on a CPU, but where their graphs take less than ``_JOINED``
_MOST = 4 << 30
_OF_GPU = 8  # an accelerator's graph takes at most one part in so many of its memory


@dataclass(frozen=True)
class GraphPlan:
    """How products are computed: printed, it says so in one line."""

    microbatch: int  # samples of the largest graph
    graphs: int  # in one pass over the data
    kept: int  # of them, between products
    size: int  # bytes of the largest graph
    memory: int  # bytes that graphs may take, the kept ones and the one at work
    together: int  # samples that may be at work where no graph is kept: of small batches, several
    note: str = ""  # what graphs do not keep but compute again, or why they keep it

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs of at most {self.microbatch} samples ({self.size / 2**20:.0f} MiB), "
            f"{self.kept} kept between products" + (f"; {self.note}" if self.note else "")
        )


@dataclass(frozen=True)
class GraphBytes:
    """The bytes of a graph of so many samples, on a device of so much memory of its own (0: a CPU)."""

    fixed: float
    each: float
    own: int = 0

    def __call__(self, samples: int) -> int:
        return round(self.fixed + self.each * samples)

    def fitting(self, longest: int, memory: int | None) -> int:
        """Return the most samples, at least one and at most ``longest``, whose graph stays within bounds.

        What does not grow with the samples (a gradient of all weights) counts against ``memory`` alone:
        smaller parts would not make it smaller.
        """
        room = self.room(memory)
        return longest if self.each * longest <= room else max(1, int(room / self.each))

    def exceeds(self, memory: int | None) -> bool:
        return self(1) > (max(_MOST, self.own // 2) if memory is None else memory)

    def room(self, memory: int | None) -> float:
        most = self._most(_WORKING)
        return most if memory is None else min(memory - self.fixed, most)

    def joining(self, memory: int | None) -> int:
        """Return the most samples of a graph for which small batches are joined; 0: none."""
        return max(0, int(min(self.room(memory), self._most(_JOINED)) / max(1.0, self.each)))

    def together(self, most: int) -> int:
        """Return how many samples of graphs of ``most`` may be at work together where none is kept."""
        if self.own:
            return max(most, int(self._most(_WORKING) / max(1.0, self.each)))
        several = max(_TOGETHER, int(_JOINED / max(1.0, self.each)))
        return max(most, min(several, _WORKING * most // max(1, self(most))))

    @property
    def copied(self) -> int:
        """The most bytes of samples that are copied where batches are joined."""
        return self._most(_COPIED)

    def _most(self, on_cpu: int) -> int:
        return self.own // _OF_GPU or on_cpu


class Graphs:
    """The graphs of a sequence of batches, built when first used and kept as far as the plan says.

    Args:
        build: makes a graph.
        batches: what the products run over; an attribute too.
        size: of a graph.
        most: samples of a graph; as many as the longest batch has where batches cannot be cut.
        memory: bytes, or None for a quarter of what is free, on a CPU at most 4 GiB.
        keep: whether any is kept; not where the weights move between products.
        note: what ``build`` leaves out of graphs, for the plan.
    """

    def __init__(
        self,
        build: Build,
        batches: Batches,
        size: GraphBytes,
        *,
        most: int,
        memory: int | None,
        keep: bool = True,
        note: str = "",
    ) -> None:
        self._build, self._size, self._memory = build, size, memory
        self.batches = batches
        self._parts = [slices(samples, most) for samples in batches.sizes]
        counts = [_length(part) for parts in self._parts for part in parts]
        sizes = [size(samples) for samples in counts]
        longest = max(batches.sizes)
        if memory is not None and max(sizes) > memory and most == longest > 1:
            raise UserError(
                f"the graph of a batch of {longest} takes about {max(sizes) / 2**20:.0f} MiB, memory is "
                f"{memory / 2**20:.0f} MiB, and a batch whose samples interact (bn='batch', or a loss that "
                "is no mean over samples) cannot be cut: give more memory or smaller batches"
            )
        if memory is None:  # of what is read again in every pass no graph is kept
            memory = max(sizes) if batches.is_streamed else _free(next(leaves(batches[0])).device)
        budget = memory
        self.plan = GraphPlan(
            max(counts),
            len(sizes),
            _kept(sizes, budget) if keep else 0,
            max(sizes),
            budget,
            size.together(max(counts)),
            note,
        )
        self._kept: dict[tuple[int, int], Graph] = {}
        self._losses: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def joined(self) -> "Graphs | None":
        """The graphs of several small batches each; None where there are no two to join."""
        most, count = self._size.joining(self._memory), len(self.batches)
        if self.plan.graphs > count or self.batches.is_streamed or _bytes(self.batches) > self._size.copied:
            return None
        together = Batches.of(list(self.batches.joined(most)))
        if len(together) == count:
            return None
        longest = max(together.sizes)
        return Graphs(self._build, together, self._size, most=longest, memory=self._memory)

    def parts(self, b: int) -> range:
        return range(len(self._parts[b]))

    def samples(self, b: int, part: int) -> Batch:
        rows, (inputs, targets) = self._parts[b][part], self.batches[b]
        return some(inputs, rows), some(targets, rows)

    def share(self, b: int, part: int) -> float:
        return _length(self._parts[b][part]) / self.batches.sizes[b]

    def loss(self, b: int) -> Tensor:
        """Return batch b's mean loss, as it came with the graphs of all its parts."""
        return torch.stack([self.share(b, part) * self._losses[b, part] for part in self.parts(b)]).sum()

    def release(self) -> None:
        self._kept.clear()

    def graph(self, b: int, part: int) -> Graph:
        """Return the graph of a part. The caller drops it before asking for the next."""
        if (b, part) in self._kept:
            return self._kept[b, part]
        graph, self._losses[b, part] = self._build(*self.samples(b, part))
        if len(self._kept) < self.plan.kept:
            self._kept[b, part] = graph
        return graph


def _bytes(batches: Batches) -> int:
    return sum(tensor.nbytes for pair in batches for tensor in leaves(pair))


def _length(rows: slice) -> int:
    return int(rows.stop) - int(rows.start)


def _kept(sizes: list[int], budget: int) -> int:
    """Return how many of the first graphs fit, beside the one at work unless all fit."""
    if sum(sizes) <= budget:
        return len(sizes)
    kept, room = 0, budget - max(sizes)
    while sizes[kept] <= room:
        room -= sizes[kept]
        kept += 1
    return kept


def _free(device: torch.device) -> int:
    """Return a quarter of the memory that is free on the device, or in this process's control group."""
    if device_memory(device):
        return torch.cuda.mem_get_info(device)[0] // 4
    free = _available()
    limit, used = (_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        free = min(free, limit - used)
    return max(0, min(free // 4, _MOST))


def device_memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0


def _available() -> int:
    """Return the bytes that are free without swapping; half of all memory where the system does not say."""
    try:
        line = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
        )
        return 1024 * int(line.split()[1])
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # not on this system, or "max"
        return None
