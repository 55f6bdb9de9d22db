"""A network's outputs on all batches at any point of weight space, as fast as can be without derivatives.

BatchNorm is folded as for curvature (:mod:`fedscope.landscape.loss.kernels.bn_folding`). The samples go
through the network in blocks whose largest activation stays in the cache, which changes nothing where samples
do not depend on each other; where they do, each batch goes at once.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode, Precision
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.checks import check_repeats, close
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss, LossFunction
from fedscope.landscape.loss.mean_loss import check_loss
from fedscope.landscape.loss.state_space import Recalibrated, StateSpace
from fedscope.landscape.loss.trees import Tree, count, flat, joined, mapped, some, split

_BLOCK = {"cpu": 16 << 20, "cuda": 1 << 30}  # bytes of a block's largest activation


class Forward:
    """Evaluates a network at points of n coordinates, or of n + s with BatchNorm's statistics.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        bn: ``eval`` takes the point's own statistics, or the model's where the point has none;
            ``recalibrate`` re-estimates them on the samples once, at the model; ``batch`` takes the batch's.
        everywhere: re-estimate them at every point.
        precision: ``bf16`` computes in bfloat16; weights, statistics and outputs stay as they are.

    Attributes:
        loss: over a frozen copy of the model.
        space: the coordinates.
        moves: whether a point's own statistics are taken.
        recalibrated: re-estimates statistics at every point; None where that is not asked for.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Batches,
        *,
        bn: BatchNormMode,
        everywhere: bool,
        precision: Precision = "fp32",
    ) -> None:
        self.space = StateSpace.of(model)
        self.loss = loss = FlatLoss(model, loss_fn, batches, bn="eval" if everywhere else bn)
        self.precision = precision
        self._low = precision == "bf16"
        if self._low and loss.dtype != torch.float32:
            raise UserError(f"bf16 is for networks in float32, not {loss.dtype}; leave it out")
        self.moves = bn == "eval"
        self.recalibrated = Recalibrated(model, loss) if everywhere and self.space.means else None
        self._buffers = dict(loss.model.named_buffers())
        self._blocks: list[Tree] | None = None
        blocks = None if loss.coupled else self._cut(some(loss.batches[0][0], slice(SAMPLE)))
        if blocks or loss.doubtful:
            self._settle(blocks)
        check_repeats(self._sample)
        check_loss(loss)

    @torch.no_grad()
    def load(self, point: Tensor) -> None:
        """Set the weights, and running statistics, of a float64 point; they stay until they are set again."""
        weights = point[: self.space.n]
        self.loss.load(weights.to(self.loss.dtype))
        statistics = {}
        if self.recalibrated is not None:
            statistics = self.recalibrated(weights)
        elif self.moves and len(point) > self.space.n:
            statistics = self.space.statistics(point)
        for name, value in statistics.items():
            self._buffers[name].copy_(value)

    @torch.no_grad()  # not inference mode, in which a forward cannot differentiate
    def outputs(self) -> list[Any]:
        if self._blocks is None:
            return [self._output(inputs) for inputs, _ in self.loss.batches]
        sizes = list(self.loss.batches.sizes)
        return list(torch.cat([self._output(block) for block in self._blocks]).split(sizes))

    def _sample(self) -> Tensor:
        inputs = self.loss.batches[0][0]
        with torch.no_grad():
            return flat(self._output(inputs if self.loss.coupled else some(inputs, slice(SAMPLE))))

    def _output(self, inputs: Tree) -> Any:
        kind = self.loss.device.type
        with self.loss.exact(), torch.autocast(kind, torch.bfloat16, enabled=self._low):
            output = self.loss.outputs(inputs)
        return mapped(Tensor.float, output) if self._low else output

    @torch.no_grad()
    def _cut(self, sample: Tree) -> list[Tree] | None:
        """Return all samples in blocks, if they fit together; none of those that are read in every pass."""
        if self.loss.batches.is_streamed:
            return None
        output, largest = _largest(self.loss.model, count(sample), lambda: self._output(sample))
        if type(output) is not Tensor:
            return None
        try:
            inputs = joined([inputs for inputs, _ in self.loss.batches])
        except UserError:  # sequences of several lengths
            return None
        room = _BLOCK.get(self.loss.device.type, _BLOCK["cpu"])
        return split(inputs, max(1, room * count(sample) // max(1, largest)))

    def _settle(self, blocks: list[Tree] | None) -> None:
        """Choose the fastest way that gives the outputs of the network for its batches."""
        with self.loss.plainly():
            wanted = [flat(output) for output in self.outputs()]
        dtype = torch.bfloat16 if self._low else self.loss.dtype
        for self._blocks in (blocks, None):
            with suppress(Exception):  # whatever a network raises whose samples do not stand alone
                pairs = [(flat(a), b) for a, b in zip(self.outputs(), wanted, strict=True)]
                if all(a.shape == b.shape and close(a, b, dtype) for a, b in pairs):
                    return
        if self.loss.doubtful:
            self.loss.give_up_form("its outputs would differ")


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
