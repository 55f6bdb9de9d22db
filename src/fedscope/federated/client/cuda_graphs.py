"""CUDA graphs: a step is recorded once per shape and replayed, which leaves one launch per step."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

WARM_UPS = 3  # eager runs before recording, on a side stream, as CUDA graphs ask for


class Replay:
    """``step(inputs, flag)`` as a graph: recorded for each new set of shapes and flag, then replayed.

    ``step`` reads its ``inputs`` and otherwise only tensors that stay where they are; it returns nothing and
    changes ``changed`` alone, which recording leaves as it was.
    """

    def __init__(self, step: Callable[..., None], changed: Sequence[Tensor]):
        self._step = step
        self._changed = changed
        self._side = torch.cuda.Stream()
        self._pool: Any = None  # shared: no recorded step leaves a tensor that another could overwrite
        self._graphs: dict[object, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}

    def __call__(self, *inputs: Tensor, flag: bool) -> None:
        key = (flag, *(tuple(t.shape) for t in inputs))
        if key not in self._graphs:
            self._graphs[key] = self._record([t.clone() for t in inputs], flag)
        graph, places = self._graphs[key]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor)
        graph.replay()

    def _record(self, places: list[Tensor], flag: bool) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        before = [t.clone() for t in self._changed]
        side = self._side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._step(*places, flag=flag)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(*places, flag=flag)
        self._pool = graph.pool()
        with torch.no_grad():
            for tensor, old in zip(self._changed, before, strict=True):
                tensor.copy_(old)
        return graph, places
