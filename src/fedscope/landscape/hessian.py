"""The Hessian of a model's mean loss, by double backward (Pearlmutter 1994)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.landscape.flatloss import FlatLoss, LossFunction
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.operators import Operator, Product


class Hessian(Operator):
    """H = Σ_b (n_b/N)·∇²loss_b(w), over the parameters that require a gradient.

    Batches are weighted by their sample counts and summed in float64; parameters the loss does not use
    have zero rows. With a single batch the graph of the gradient is kept between products, so that each
    costs one backward pass; with several it is rebuilt, so that memory does not grow with the data.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, the same in every product.
        bn: what BatchNorm does, see ``frozen_copy``.

    Attributes:
        names: the parameter tensors, in order.
        numels: their lengths.

    Raises:
        UserError: see ``FlatLoss``; or, at the first product, an operation without a second derivative.
    """

    def __init__(
        self, model: nn.Module, loss_fn: LossFunction, batches: Batches, *, bn: BatchNormMode = "eval"
    ) -> None:
        self._loss = FlatLoss(model, loss_fn, batches, bn=bn)
        self.names = self._loss.names
        self.numels = self._loss.numels
        super().__init__(
            sum(self.numels),
            dtype=self._loss.dtype,
            device=self._loss.device,
            blocks=tuple(zip(self.names, self.numels, strict=True)),
            weights=batches.sizes,
        )
        self._kept: tuple[Tensor, Tensor] | None = None
        self._checked = False

    def _apply(self, v: Tensor) -> Product:
        wide = v.double()
        total = torch.zeros_like(wide)
        forms = torch.empty(len(self._loss.batches), dtype=torch.float64, device=self.device)
        try:
            with torch.enable_grad(), self._loss.exact():
                for b, (samples, piece) in enumerate(self._batch_products(v)):
                    total.add_(piece, alpha=samples / self._loss.batches.samples)
                    forms[b] = wide @ piece
        except RuntimeError as error:
            if "derivative" not in str(error) and "double backward" not in str(error):
                raise
            raise UserError(
                f"an operation of the model has no second derivative; replace it ({error})"
            ) from error
        return Product(total.to(self.dtype), forms)

    def _batch_products(self, v: Tensor) -> Iterator[tuple[int, Tensor]]:
        alone = len(self._loss.batches) == 1
        for inputs, targets in self._loss.batches:
            leaf, gradient = self._kept or self._gradient(inputs, targets)
            if alone:
                self._kept = leaf, gradient
            if gradient.requires_grad:
                (product,) = torch.autograd.grad(
                    gradient, leaf, v, retain_graph=alone, materialize_grads=True
                )
            else:  # the loss is linear in every parameter
                product = torch.zeros_like(v)
            yield len(inputs), product.double()

    def _gradient(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        leaf = self._loss.center.clone().requires_grad_(True)
        loss = self._loss.on_batch(self._loss.split(leaf), inputs, targets)
        if not loss.requires_grad:
            raise UserError(
                "the loss does not depend on the trainable parameters; check the model and the loss"
            )
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        if not self._checked and _once_differentiable(gradient):
            raise UserError("an autograd.Function of the model is marked once_differentiable; replace it")
        self._checked = True
        return leaf, gradient


def _once_differentiable(gradient: Tensor) -> bool:
    """Say whether the gradient passed through a function that forbids a second derivative.

    ``autograd.grad`` does not visit the node that would raise, and returns a product without that term.
    """
    seen: set[Node] = set()
    waiting = [gradient.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return any(node.name() == "torch::autograd::Error" for node in seen)
