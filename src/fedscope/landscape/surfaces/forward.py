"""A network's outputs on all batches at any weights and statistics, as fast as can be without derivatives.

BatchNorm is folded as for curvature (:mod:`fedscope.landscape.loss.kernels.bn_folding`). The samples go
through the network in blocks whose largest activation stays in the cache, which changes nothing where samples
do not depend on each other; where they do, each batch goes at once.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import Precision
from fedscope.errors import UserError
from fedscope.landscape.loss.checks import close
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.trees import Tree, count, flat, joined, mapped, some, split

_BLOCK = {"cpu": 16 << 20, "cuda": 1 << 30}  # bytes of a block's largest activation


class Forward:
    """Evaluates a network at weights and statistics that are set one after another.

    ``bf16`` computes in bfloat16; weights, statistics and outputs stay as they are.
    """

    def __init__(self, loss: FlatLoss, precision: Precision = "fp32") -> None:
        self._loss = loss
        self.precision = precision
        self._low = precision == "bf16"
        self._buffers = dict(loss.model.named_buffers())
        self._blocks: list[Tree] | None = None
        self.load(loss.center)
        if loss.doubtful or not loss.coupled:
            self._settle(None if loss.coupled else self._cut(some(loss.batches[0][0], slice(SAMPLE))))

    @torch.no_grad()
    def load(self, weights: Tensor, statistics: Mapping[str, Tensor] | None = None) -> None:
        """Set the (n,) weights, and running statistics by name; they stay until they are set again."""
        self._loss.load(weights.to(self._loss.dtype))
        for name, value in (statistics or {}).items():
            self._buffers[name].copy_(value)

    @torch.no_grad()  # not inference mode, in which a forward cannot differentiate
    def outputs(self) -> list[Any]:
        if self._blocks is None:
            return [self._output(inputs) for inputs, _ in self._loss.batches]
        sizes = list(self._loss.batches.sizes)
        return list(torch.cat([self._output(block) for block in self._blocks]).split(sizes))

    def sample(self) -> Tensor:
        inputs = self._loss.batches[0][0]
        with torch.no_grad():
            return flat(self._output(inputs if self._loss.coupled else some(inputs, slice(SAMPLE))))

    def _output(self, inputs: Tree) -> Any:
        kind = self._loss.device.type
        with self._loss.exact(), torch.autocast(kind, torch.bfloat16, enabled=self._low):
            output = self._loss.outputs(inputs)
        return mapped(Tensor.float, output) if self._low else output

    @torch.no_grad()
    def _cut(self, sample: Tree) -> list[Tree] | None:
        """Return all samples in blocks, if they fit together; none of those that are read in every pass."""
        if self._loss.batches.is_streamed:
            return None
        output, largest = _largest(self._loss.model, count(sample), lambda: self._output(sample))
        if type(output) is not Tensor:
            return None
        try:
            inputs = joined([inputs for inputs, _ in self._loss.batches])
        except UserError:  # sequences of several lengths
            return None
        room = _BLOCK.get(self._loss.device.type, _BLOCK["cpu"])
        return split(inputs, max(1, room * count(sample) // max(1, largest)))

    def _settle(self, blocks: list[Tree] | None) -> None:
        """Choose the fastest way that gives the outputs of the network for its batches."""
        with self._loss.plainly():
            wanted = [flat(output) for output in self.outputs()]
        dtype = torch.bfloat16 if self._low else self._loss.dtype
        for self._blocks in (blocks, None):
            with suppress(Exception):  # whatever a network raises whose samples do not stand alone
                pairs = [(flat(a), b) for a, b in zip(self.outputs(), wanted, strict=True)]
                if all(a.shape == b.shape and close(a, b, dtype) for a, b in pairs):
                    return
        if self._loss.doubtful:
            self._loss.give_up_form("its outputs would differ")


def _largest(model: nn.Module, samples: int, run: Callable[[], Any]) -> tuple[Any, int]:
    """Return what ``run`` does, and the bytes of the largest output over ``samples`` of a module."""
    sizes = [0]

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.shape[:1] == (samples,):
            sizes.append(output.nbytes)

    handles = [module.register_forward_hook(note) for module in model.modules()]
    try:
        return run(), max(sizes)
    finally:
        for handle in handles:
            handle.remove()
