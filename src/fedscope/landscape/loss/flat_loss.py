"""A model's mean loss as a function of one flat vector of its trainable parameters."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.batchnorm import frozen_copy, has_batch_statistics, written_buffers
from fedscope.landscape.loss.checks import check_closed, close, largest, once_differentiable
from fedscope.landscape.loss.copies import check_made
from fedscope.landscape.loss.forms import Form, FormOutput, fastest
from fedscope.landscape.loss.kernels.bn_folding import Fold
from fedscope.landscape.loss.kernels.derivatives import WrittenOut, joined, padding, pulled, without_compiler
from fedscope.landscape.loss.kernels.exact_arithmetic import ExactArithmetic
from fedscope.landscape.loss.parameter_patterns import chosen
from fedscope.landscape.loss.recomputed.blocks import Blocks
from fedscope.landscape.loss.recomputed.logits import ChunkedLogits
from fedscope.landscape.loss.trees import Tree, arguments, as_pairs, cloned, count, flat, some
from fedscope.streams import random_signs

SAMPLE = 8  # samples of the first batch on which a network is looked at before it is used
LossFunction = Callable[[Any, Any], Tensor]
"""(output, targets) ↦ the scalar mean over the batch; both as model and data give them."""


class FlatLoss:
    """L(w) = Σ_b (n_b/N)·loss_b(w): batches weighted by their sample counts, over a frozen copy of the model.

    The vector w concatenates, in the order of ``named_parameters``, the n scalars that require a gradient;
    with ``parameters``, those of them whose names match one of these patterns. Model and loss get copies of
    the samples, so that what they write to is not the user's.

    Args:
        model: any module; it is copied and never modified. A ``torch.compile`` wrapper is looked through,
            because a compiled graph has no second derivative.
        batches: or what :meth:`Batches.from_iterable` takes; moved to the model's device, floating tensors
            cast to its dtype.
        twice: evaluate it by kernels that have a second derivative.

    Attributes:
        model: the frozen copy; a buffer that its forward updates is as in ``model`` in every evaluation.
        form: how the copy is evaluated (:mod:`fedscope.landscape.loss.forms`).
        mixed: whether samples depend on each other by BatchNorm.
        coupled: whether batches cannot be cut: ``mixed``, or the network takes so many at once and no fewer.
        exact: the arithmetic that every evaluation must be in: ``with loss.exact():``.
        logits: of an output layer with many classes; the loss goes over them by chunks.
        recomputes_blocks: whether graphs keep what goes into the blocks alone; set it before a graph is made.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        batches: Data,
        *,
        bn: BatchNormMode = "eval",
        parameters: Sequence[str] | None = None,
        twice: bool = True,
    ) -> None:
        model = getattr(model, "_orig_mod", model)
        check_made(model)
        trained = [(name, p.detach()) for name, p in model.named_parameters() if p.requires_grad]
        if not trained:
            raise UserError(
                "no parameter of the model requires a gradient; call requires_grad_(True) on some"
            )
        trained = chosen(trained, parameters)
        if strange := [name for name, p in trained if p.is_complex()]:
            raise UserError(
                f"the parameter {strange[0]} is complex; hold real and imaginary part in a real one and take "
                "torch.view_as_complex of it in forward"
            )
        kinds = sorted({(str(p.device), str(p.dtype)) for _, p in trained})
        if len(kinds) > 1:
            raise UserError(f"the parameters are of several kinds, {kinds}: use one .to(device, dtype)")
        first = trained[0][1]
        self.dtype, self.device = first.dtype, first.device
        self.names = tuple(name for name, _ in trained)
        self.shapes = tuple(p.shape for _, p in trained)
        self.numels = tuple(p.numel() for _, p in trained)
        self.batches = Batches.of(batches, loss=loss_fn).to(self.device, self.dtype)
        self._loss_fn = loss_fn
        self.exact = ExactArithmetic(model, self.device, twice=twice)
        self.model = frozen_copy(model, bn=bn, batches=self.batches)
        own = dict(self.model.named_parameters())
        self.center = joined([own[name] for name in self.names])  # (n,)
        self.parameters = tuple(own[name].requires_grad_(True) for name in self.names)
        self.coupled = self.mixed = has_batch_statistics(self.model)
        self._held = padding(self.model, self.parameters)
        self._fold = Fold(self.model)
        self.logits, self.blocks = ChunkedLogits(self.model), Blocks(self.model)
        self.recomputes_blocks = False
        self._known: dict[int, Tensor] = {}
        self._sizes: dict[int, float] = {}
        self._prepare(*next(iter(self.batches)))

    def _prepare(self, inputs: Tree, targets: Tree) -> None:
        few, few_targets = (some(tree, slice(SAMPLE // 2)) for tree in (inputs, targets))
        self._written: dict[tuple[nn.Module, str], Tensor] = {}
        self._differentiates = False
        with self.exact():
            try:
                self._written = self._tried(few, few_targets)
            except Exception:  # whatever a network or a loss raises that takes whole batches only
                self._written = self._tried(inputs, targets)
                self.coupled, few, few_targets = True, inputs, targets
            with torch.enable_grad():
                self.form = fastest(
                    self._fold, lambda: flat(self.outputs(few)), lambda: self._attempt(few, few_targets)
                )

    def _tried(self, inputs: Tree, targets: Tree) -> dict[tuple[nn.Module, str], Tensor]:
        def evaluated() -> Tensor:
            return self._checked(cloned(inputs), targets)

        try:
            with torch.no_grad():
                return written_buffers(self.model, evaluated)
        except RuntimeError:  # of a forward that differentiates
            with torch.enable_grad():
                found = written_buffers(self.model, evaluated)
            self._differentiates = True
            return found

    def _checked(self, inputs: Tree, targets: Tree) -> Tensor:
        """Return the loss of inputs that may be written to, once it is seen to be of this network alone."""
        outputs = self._called(inputs)
        with torch.enable_grad():
            loss = self.of(outputs, targets)
        check_closed(loss, self.parameters)
        return loss

    def _attempt(self, inputs: Tree, targets: Tree) -> FormOutput:
        outputs = self.outputs(inputs)
        loss = self.of(outputs, targets)
        numbers = flat((outputs, loss)).detach()
        try:
            gradients = pulled((loss,), self.parameters, (torch.ones_like(loss),), again=True)
            along = self.split(signs(self.center))
            product = joined(pulled(gradients, self.parameters, along))
        except RuntimeError:  # an operation without a derivative; who needs one says which
            return FormOutput(numbers, None)
        return FormOutput(numbers, None if once_differentiable(gradients) else product)

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Cut a flat (n,) vector into the parameters' shapes: views, but for pairs at an odd place."""
        pieces = torch.split(vector, list(self.numels))
        return tuple(as_pairs(piece.view(shape)) for piece, shape in zip(pieces, self.shapes, strict=True))

    def moving(self, v: Tensor) -> Tensor:
        """Return v (n,) with 0 where no gradient moves a weight: in the padding rows of embeddings."""
        return v if self._held is None else v.masked_fill(self._held, 0)

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        """Set the (n,) weights, in place; they stay until they are set again. At first: the model's own."""
        for parameter, piece in zip(self.parameters, self.split(vector), strict=True):
            if not torch.equal(parameter, piece):  # else graphs that are kept would be outdated
                parameter.copy_(piece)

    def on_batch(self, inputs: Tree, targets: Tree) -> Tensor:
        with self.logits():
            outputs = self.outputs(inputs)
        return self.of(outputs, targets)

    def gradient(self, inputs: Tree, targets: Tree) -> Tensor:
        with torch.enable_grad(), self.exact(), self.plainly():
            loss = self.on_batch(inputs, targets)
            self.check_used(loss)
            return joined(pulled((loss,), self.parameters, (torch.ones_like(loss),)))

    @staticmethod
    def check_used(value: Tensor) -> None:
        if not value.requires_grad:
            raise UserError(
                "the loss does not depend on the trainable parameters; check the model and the loss"
            )

    def outputs(self, inputs: Tree) -> Any:
        return self._called(cloned(inputs))

    def _called(self, inputs: Tree) -> Any:
        positional, named = arguments(inputs)
        for (module, name), value in self._written.items():
            module._buffers[name] = value.clone()  # not in place: a graph may hold on to the last one
        try:
            blocks = self.blocks() if self.recomputes_blocks else nullcontext()
            with torch.set_grad_enabled(torch.is_grad_enabled() or self._differentiates), blocks:
                return self.model(*positional, **named)
        finally:
            for (module, name), value in self._written.items():
                module._buffers[name] = value

    def of(self, output: Any, targets: Tree) -> Tensor:
        return self.of_copies(output, cloned(targets))

    def of_copies(self, output: Any, targets: Tree) -> Tensor:
        """Return the scalar mean loss of outputs for targets that it may write to."""
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
    def losses(self) -> Tensor:
        """Each batch's mean loss (B,) at ``center`` by the network as it is; what is not finite stays so."""
        return torch.stack([self._loss_of(b, *batch) for b, batch in enumerate(self.batches)])

    @torch.no_grad()
    def _loss_of(self, b: int, inputs: Tree, targets: Tree) -> Tensor:
        if b not in self._known:
            self.load(self.center)
            with self.plainly(), self.exact():
                with self.logits():
                    outputs = self.outputs(inputs)
                self._known[b] = self.of(outputs, targets)
            self._sizes[b] = largest(outputs)
        return self._known[b]

    @contextmanager
    def forward_mode(self) -> Iterator[None]:
        with (
            self.exact(),
            self._fold.forward_mode(),
            WrittenOut(),
            without_compiler(),
            warnings.catch_warnings(),
        ):
            # PyTorch's own rules of forward mode go through its deprecated jit.
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
            yield

    def plainly(self) -> AbstractContextManager[None]:
        """Evaluate the network as it is for a while, in no faster form."""
        return self._fold.aside()

    @property
    def doubtful(self) -> bool:
        """Whether the form is one that other samples than those tried may tell from the network."""
        return self.form.fast and self._fold.folded

    def differs(self, b: int, found: Tensor) -> bool:
        own = self._loss_of(b, *self.batches[b])
        return not close(own, found, self.dtype, beside=self._sizes[b])

    def give_up_form(self, reason: str) -> None:
        """Evaluate the network as it is from now on; graphs that were made before are of the other form."""
        self._fold.remove()
        self.form = Form(fast=False, reason=reason)


def signs(like: Tensor) -> Tensor:
    return random_signs(tuple(like.shape), torch.Generator().manual_seed(0), like.dtype).to(like.device)
