"""A network's outputs on all batches at any weights and statistics, as fast as can be without derivatives.

On the CPU float32 convolutional networks run in fused operations
(:mod:`fedscope.landscape.surfaces.fused_layers`) where their outputs on some samples agree with the plain
network's to rounding, at two places of weight space; others with BatchNorm folded as for curvature. The
samples go through the network in blocks whose largest activation stays in the cache, which changes nothing
where samples do not depend on each other; where they do, each batch goes at once.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import Precision
from fedscope.errors import UserError
from fedscope.landscape.loss.batchnorm import frozen_copy
from fedscope.landscape.loss.checks import close
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.state_space import StateSpace
from fedscope.landscape.loss.trees import Tree, count, flat, joined, mapped, some, split
from fedscope.landscape.surfaces.fused_layers import Fused, fusible, laid_out

_BLOCK = {"cpu": 16 << 20, "cuda": 1 << 30}  # bytes of a block's largest activation


class Forward:
    """Evaluates a network at weights and statistics that are set one after another.

    ``loss`` is the one for which ``model`` was frozen. ``bf16`` computes in bfloat16; weights, statistics and
    outputs stay as they are.
    """

    def __init__(self, model: nn.Module, loss: FlatLoss, precision: Precision = "fp32") -> None:
        self._loss = loss
        self.precision = precision
        self._low = precision == "bf16"
        self._buffers = dict(loss.model.named_buffers())
        self._tensors: dict[str, Tensor] = {}
        self._blocks: list[Tree] | None = None
        self._fused: Fused | None = None
        self._loaded = False
        self.load(loss.center)
        if loss.coupled:
            if loss.doubtful:
                self._settle(None)
            return
        sample = some(loss.batches[0][0], slice(SAMPLE))
        if not loss.writes and fusible(model) and isinstance(sample, Tensor):
            self._fused = self._as_fused(getattr(model, "_orig_mod", model), sample)
            self.load(loss.center)
        self._settle(self._cut(sample))

    @property
    def fused(self) -> int:
        return 0 if self._fused is None else self._fused.fused

    @torch.no_grad()
    def load(self, weights: Tensor, statistics: Mapping[str, Tensor] | None = None) -> None:
        """Set the (n,) weights, and running statistics by name; they stay until they are set again."""
        weights = weights.to(self._loss.dtype)
        pieces = self._loss.split(weights)
        self._loss.load(weights)
        for name, value in (statistics or {}).items():
            self._buffers[name].copy_(value)
        self._tensors = dict(zip(self._loss.names, pieces, strict=True)) | dict(statistics or {})
        self._loaded = False

    @torch.no_grad()  # not inference mode, in which a forward cannot differentiate
    def outputs(self, *, plain: bool = False) -> list[Any]:
        run = self._plain if plain or self._fused is None else self._quick
        if self._blocks is None:
            return [run(inputs) for inputs, _ in self._loss.batches]
        sizes = list(self._loss.batches.sizes)
        return list(torch.cat([run(block) for block in self._blocks]).split(sizes))

    def sample(self) -> Tensor:
        inputs = self._loss.batches[0][0]
        with torch.no_grad():
            return flat(self._plain(inputs if self._loss.coupled else some(inputs, slice(SAMPLE))))

    def _plain(self, inputs: Tree) -> Any:
        kind = self._loss.device.type
        with self._loss.exact(), torch.autocast(kind, torch.bfloat16, enabled=self._low):
            output = self._loss.outputs(inputs)
        return mapped(Tensor.float, output) if self._low else output

    def _quick(self, inputs: Tensor) -> Tensor:
        assert self._fused is not None
        if not self._loaded:
            self._fused.load(self._tensors)
            self._loaded = True
        with self._loss.exact():
            output: Tensor = self._fused(laid_out(inputs.to(self._fused.dtype)))
        return output.float()

    def _as_fused(self, model: nn.Module, sample: Tensor) -> Fused | None:
        frozen = frozen_copy(model, batches=self._loss.batches)
        frozen.load_state_dict(self._loss.model.state_dict())
        try:
            exact = Fused(frozen, sample, torch.float32)
            if not exact.fused or not self._follows(exact, sample):
                return None
            return Fused(frozen, sample, torch.bfloat16 if self._low else torch.float32)
        except Exception:  # whatever a network raises that cannot be traced, or is no map of tensors
            return None

    @torch.no_grad()
    def _follows(self, fused: Fused, sample: Tensor) -> bool:
        """Say whether it gives the network's outputs here, and where all weights and statistics are others.

        What a forward computes from a tensor without the tracer is a constant of the graph.
        """
        space, here = StateSpace.of(self._loss.model), self._loss.center
        names = (*space.means, *space.variances)
        before = {name: self._buffers[name].clone() for name in names}
        noise = torch.randn(len(here), generator=torch.Generator().manual_seed(0))
        beside = here + 0.1 * here.square().mean().sqrt() * noise
        elsewhere = {name: 1.2 * value + 0.1 * value.abs().mean() for name, value in before.items()}
        try:
            for weights, statistics in ((here, before), (beside, elsewhere)):
                self.load(weights, statistics)
                fused.load(self._tensors)
                with self._loss.exact():
                    wanted = flat(self._loss.outputs(sample))
                    if not close(fused(laid_out(sample)), wanted, sample.dtype):
                        return False
        finally:
            self.load(here, before)
        return True

    @torch.no_grad()
    def _cut(self, sample: Tree) -> list[Tree] | None:
        """Return all samples in blocks, if they fit together; none of those that are read in every pass."""
        if self._loss.batches.is_streamed:
            return None
        output, largest = _largest(self._loss.model, count(sample), lambda: self._plain(sample))
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
        fused = self._fused
        with self._loss.plainly():
            wanted = [flat(output) for output in self.outputs(plain=True)]
        ways = [(fused, blocks), (fused, None), (None, blocks)]
        if self._loss.doubtful:
            ways.append((None, None))
        for self._fused, self._blocks in ways:
            with suppress(Exception):  # whatever a network raises whose samples do not stand alone
                found = [flat(output) for output in self.outputs()]
                pairs = zip(found, wanted, strict=True)
                dtype = torch.bfloat16 if self._low else self._loss.dtype
                if all(a.shape == b.shape and close(a, b, dtype) for a, b in pairs):
                    return
        self._fused = self._blocks = None
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
