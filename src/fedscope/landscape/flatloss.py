"""A model's mean loss as a function of one flat vector of its trainable parameters."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.errors import UserError, suggestion
from fedscope.landscape.batches import Batches
from fedscope.landscape.fold import fold
from fedscope.landscape.normalization import (
    BatchNormMode,
    frozen_copy,
    has_batch_statistics,
    written_buffers,
)
from fedscope.landscape.trees import Tree, arguments, count, flat, some

SAMPLE = 8  # samples of the first batch on which a network is looked at before it is used
LossFunction = Callable[[Any, Any], Tensor]
"""(output, targets) ↦ the scalar mean over the batch; both as model and data give them."""


class FlatLoss:
    """L(w) = Σ_b (n_b/N)·loss_b(w): batches weighted by their sample counts, over a frozen copy of the model.

    The vector w concatenates, in the order of ``named_parameters``, the n scalars that require a gradient;
    with ``parameters``, those of them whose names match one of these patterns.

    Args:
        model: any module; it is copied and never modified. A ``torch.compile`` wrapper is looked through,
            because a compiled graph has no second derivative.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: moved to the model's device; floating tensors cast to its dtype.
        bn: see ``frozen_copy``.
        parameters: patterns of names (:mod:`fnmatch`), such as ``layer3.*``; None: all.

    Attributes:
        model: the frozen copy; a buffer that its forward updates is as in ``model`` in every evaluation.
        coupled: whether a sample's output depends on the other samples of its batch, by BatchNorm.

    Raises:
        UserError: nothing to differentiate, a pattern without a match, or parameters of several dtypes or on
            several devices.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Batches,
        *,
        bn: BatchNormMode = "eval",
        parameters: Sequence[str] | None = None,
    ) -> None:
        model = getattr(model, "_orig_mod", model)
        trained = [(name, p.detach()) for name, p in model.named_parameters() if p.requires_grad]
        if not trained:
            raise UserError(
                "no parameter of the model requires a gradient; call requires_grad_(True) on some"
            )
        trained = _chosen(trained, parameters)
        kinds = {(str(p.device), str(p.dtype)) for _, p in trained}
        if len(kinds) > 1:
            raise UserError(
                f"the parameters are of several kinds, {sorted(kinds)}: use one .to(device, dtype)"
            )
        self.dtype = trained[0][1].dtype
        self.device = trained[0][1].device
        self.names = tuple(name for name, _ in trained)
        self.shapes = tuple(p.shape for _, p in trained)
        self.numels = tuple(p.numel() for _, p in trained)
        self.center = torch.cat([p.reshape(-1) for _, p in trained])  # (n,)
        self.batches = batches.to(self.device, self.dtype)
        self._loss_fn = loss_fn
        self._has_rnn = any(isinstance(module, nn.RNNBase) for module in model.modules())
        self.model = frozen_copy(model, bn=bn, batches=self.batches)
        self.coupled = bn == "batch" or has_batch_statistics(self.model)
        self._prepare(next(iter(self.batches))[0])

    def _prepare(self, inputs: Tree) -> None:
        """Find the buffers that the model writes when evaluated, then make it faster."""
        sample = inputs if self.coupled else some(inputs, slice(SAMPLE))
        self._written: dict[str, Tensor] = {}
        with self.exact():
            self._written = written_buffers(self.model, sample)
            fold(self.model, lambda: flat(functional_call(self.model, self._unwritten(), *arguments(sample))))

    @property
    def writes(self) -> bool:
        """Whether an evaluation changes a buffer, which is then put back."""
        return bool(self._written)

    def _unwritten(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._written.items()}

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Cut a flat (n,) vector into views of the parameters' shapes."""
        pieces = torch.split(vector, list(self.numels))
        return tuple(piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True))

    def on_batch(self, parameters: tuple[Tensor, ...], inputs: Tree, targets: Tree) -> Tensor:
        """Return the scalar mean loss of one batch at these parameters, differentiable in them."""
        return self.of(self.outputs(parameters, inputs), targets)

    def outputs(self, parameters: tuple[Tensor, ...], inputs: Tree) -> Any:
        """Return the model's outputs on one batch at these parameters, differentiable in them."""
        named = dict(zip(self.names, parameters, strict=True)) | self._unwritten()
        return functional_call(self.model, named, *arguments(inputs))

    def of(self, output: Any, targets: Tree) -> Tensor:
        """Return the scalar mean loss of outputs."""
        loss = self._loss_fn(output, targets)
        if not isinstance(loss, Tensor) or loss.ndim != 0:
            kind = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"type {type(loss).__name__}"
            raise UserError(f"the loss has {kind}; it must return the batch mean, a scalar tensor")
        return loss

    @torch.no_grad()
    def value(self, vector: Tensor) -> float:
        """Return L at a flat (n,) vector, accumulated in float64; non-finite values come out as they are."""
        parameters = self.split(vector)
        with self.exact():
            total = sum(count(x) * self.on_batch(parameters, x, y).double() for x, y in self.batches)
        return float(total / self.batches.samples)

    @cached_property
    @torch.no_grad()
    def losses(self) -> Tensor:
        """Each batch's mean loss at ``center``, (B,); non-finite values come out as they are."""
        parameters = self.split(self.center)
        with self.exact():
            return torch.stack([self.on_batch(parameters, *batch) for batch in self.batches])

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Use kernels that repeat bit for bit, keep float32 digits and have second derivatives."""
        fast = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as stack:
            # Attention's fused path for inference rounds otherwise than the one that has derivatives.
            stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(torch.autocast(self.device.type, enabled=False))
            # cuDNN's recurrent kernels have no second derivative, and its TF32 keeps ten bits of mantissa.
            stack.enter_context(
                torch.backends.cudnn.flags(
                    enabled=not self._has_rnn, benchmark=False, deterministic=True, allow_tf32=False
                )
            )
            yield


def _chosen(named: list[tuple[str, Tensor]], patterns: Sequence[str] | None) -> list[tuple[str, Tensor]]:
    """Return those whose names match a pattern, in their order."""
    for pattern in patterns or ():
        if not any(fnmatchcase(name, pattern) for name, _ in named):
            names = [name for name, _ in named]
            hint = suggestion(pattern, [*names, *_subtrees(names)]) or f"; there are {_some(names)}"
            raise UserError(f"no trainable parameter matches {pattern!r}{hint}")
    if patterns is None:
        return named
    return [(name, p) for name, p in named if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _subtrees(names: Sequence[str]) -> list[str]:
    """Return the pattern of each module: ``a.*`` and ``a.b.*`` of ``a.b.weight``."""
    heads = (name.split(".")[:depth] for name in names for depth in range(1, name.count(".") + 1))
    return list(dict.fromkeys(f"{'.'.join(head)}.*" for head in heads))


def _some(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
