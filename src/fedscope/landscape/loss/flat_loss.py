"""A model's mean loss as a function of one flat vector of its trainable parameters."""

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError, suggestion
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.batchnorm import frozen_copy, has_batch_statistics, written_buffers
from fedscope.landscape.loss.bn_folding import Fold
from fedscope.landscape.loss.checks import once_differentiable
from fedscope.landscape.loss.derivatives import DifferentiableWeightNorm, has_weight_norm, joined, pulled
from fedscope.landscape.loss.forms import Trial, fastest
from fedscope.landscape.loss.trees import Tree, arguments, count, flat, leaves, mapped, some

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
        batches: or what :meth:`Batches.from_iterable` takes; moved to the model's device, floating tensors
            cast to its dtype.
        bn: see ``frozen_copy``.
        parameters: patterns of names (:mod:`fnmatch`), such as ``layer3.*``; None: all.

    Attributes:
        model: the frozen copy; a buffer that its forward updates is as in ``model`` in every evaluation.
        parameters: of the copy, those that are differentiated in, in order.
        form: how the copy is evaluated (:mod:`fedscope.landscape.loss.forms`).
        fold: its faster functions.
        coupled: whether batches cannot be cut: samples depend on each other by BatchNorm, or the network
            takes so many at once and no fewer.

    Raises:
        UserError: nothing to differentiate, a pattern without a match, or parameters of several dtypes or on
            several devices.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Batches | Iterable[object],
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
        if strange := [name for name, p in trained if p.is_complex()]:
            raise UserError(
                f"the parameter {strange[0]} is complex; hold real and imaginary part in a real one and take "
                "torch.view_as_complex of it in forward"
            )
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
        self.batches = Batches.of(batches).to(self.device, self.dtype)
        self._loss_fn = loss_fn
        modules = list(model.modules())
        self._has_rnn = any(isinstance(module, nn.RNNBase) for module in modules)
        self._has_weight_norm = any(map(has_weight_norm, modules))
        self.model = frozen_copy(model, bn=bn, batches=self.batches)
        own = dict(self.model.named_parameters())
        self.parameters = tuple(own[name].requires_grad_(True) for name in self.names)
        self.coupled = bn == "batch" or has_batch_statistics(self.model)
        self._prepare(*next(iter(self.batches)))

    def _prepare(self, inputs: Tree, targets: Tree) -> None:
        """Find the buffers that the model writes when evaluated, then make it faster."""
        few, few_targets = (some(tree, slice(SAMPLE // 2)) for tree in (inputs, targets))
        self._written: dict[tuple[nn.Module, str], Tensor] = {}
        self._differentiates = self._overwrites = False
        with self.exact():
            try:
                self._written = self._tried(few, few_targets)
            except Exception:  # whatever a network or a loss raises that takes whole batches only
                self._written = self._tried(inputs, targets)
                self.coupled, few, few_targets = True, inputs, targets
            with torch.enable_grad():
                self.fold = Fold(self.model)
                self.form = fastest(
                    self.fold, lambda: flat(self.outputs(few)), lambda: self._attempt(few, few_targets)
                )

    def _tried(self, inputs: Tree, targets: Tree) -> dict[tuple[nn.Module, str], Tensor]:
        """Return the buffers that an evaluation writes, and note what else it changes."""
        own = mapped(Tensor.clone, inputs)
        try:
            with torch.no_grad():
                found = written_buffers(self.model, lambda: self.on_batch(own, targets))
        except RuntimeError:  # of a forward that differentiates
            again = own = mapped(Tensor.clone, inputs)
            with torch.enable_grad():
                found = written_buffers(self.model, lambda: self.on_batch(again, targets))
            self._differentiates = True
        pairs = zip(leaves(own), leaves(inputs), strict=True)
        self._overwrites = not all(torch.equal(*pair) for pair in pairs)
        return found

    def _attempt(self, inputs: Tree, targets: Tree) -> Trial:
        outputs = self.outputs(inputs)
        loss = self.of(outputs, targets)
        numbers = flat((outputs, loss)).detach()
        try:
            gradients = pulled((loss,), self.parameters, (torch.ones_like(loss),), again=True)
            along = self.split(signs(self.center))
            product = joined(pulled(gradients, self.parameters, along))
        except RuntimeError:  # an operation has no derivative: an operator that needs it names it
            return Trial(numbers, None)
        return Trial(numbers, None if once_differentiable(gradients) else product)

    @property
    def writes(self) -> bool:
        """Whether an evaluation changes a buffer or its inputs, which are then as before."""
        return bool(self._written) or self._overwrites

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Cut a flat (n,) vector into views of the parameters' shapes."""
        pieces = torch.split(vector, list(self.numels))
        return tuple(piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True))

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        """Set the (n,) weights, in place; they stay until they are set again. At first: the model's own."""
        for parameter, piece in zip(self.parameters, self.split(vector), strict=True):
            if not torch.equal(parameter, piece):  # else graphs that are kept would be outdated
                parameter.copy_(piece)

    def on_batch(self, inputs: Tree, targets: Tree) -> Tensor:
        """Return the scalar mean loss of one batch, differentiable in ``parameters``."""
        return self.of(self.outputs(inputs), targets)

    def outputs(self, inputs: Tree) -> Any:
        """Return the model's outputs on one batch, differentiable in ``parameters``."""
        positional, named = arguments(mapped(Tensor.clone, inputs) if self._overwrites else inputs)
        for (module, name), value in self._written.items():
            module._buffers[name] = value.clone()  # not in place: a graph may hold on to the last one
        try:
            with torch.set_grad_enabled(torch.is_grad_enabled() or self._differentiates):
                return self.model(*positional, **named)
        finally:
            for (module, name), value in self._written.items():
                module._buffers[name] = value

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
        self.load(vector)
        with self.exact():
            total = sum(count(x) * self.on_batch(x, y).double() for x, y in self.batches)
        return float(total / self.batches.samples)

    @cached_property
    @torch.no_grad()
    def losses(self) -> Tensor:
        """Each batch's mean loss at ``center``, (B,); non-finite values come out as they are."""
        self.load(self.center)
        with self.exact():
            return torch.stack([self.on_batch(*batch) for batch in self.batches])

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
            if self._has_weight_norm:
                stack.enter_context(DifferentiableWeightNorm())
            if "torch._dynamo" in sys.modules:  # a compiled part has no second derivative
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield

    @contextmanager
    def forward_mode(self) -> Iterator[None]:
        """Let the network be differentiated in forward mode, twice, by kernels as in :meth:`exact`."""
        with self.exact(), self.fold.forward_mode(), warnings.catch_warnings():
            # PyTorch's own rules of forward mode go through its deprecated jit.
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
            yield


def signs(like: Tensor) -> Tensor:
    """Return the vector of random signs that a product is tried with."""
    drawn = torch.randint(2, like.shape, generator=torch.Generator().manual_seed(0))
    return (2 * drawn - 1).to(like)


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
