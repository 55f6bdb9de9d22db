"""What the curvature operators of a loss share: a weighted mean over batches of symmetric products."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.landscape.flatloss import FlatLoss, LossFunction
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.operators import Operator, Product
from fedscope.landscape.trees import Tree, count


class LossOperator(Operator):
    """A = Σ_b (n_b/N)·A_b over the parameters that require a gradient, or over some of them.

    Batches are weighted by their sample counts and summed in float64; parameters the loss does not use
    have zero rows. With a single batch the graph is kept between products, so that each costs backward
    passes only; with several it is rebuilt, so that memory does not grow with the data.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples, the same in every product.
        bn: what BatchNorm does, see ``frozen_copy``.
        parameters: patterns such as ``layer3.*`` or ``*.weight`` (:mod:`fnmatch`); the operator is the
            diagonal block of the parameters whose names match one. None: all that require a gradient.

    Attributes:
        names: the parameter tensors, in order.
        numels: their lengths.

    Raises:
        UserError: see ``FlatLoss``; or, at the first product, an operation that cannot be differentiated as
            often as the operator needs.
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
        self._loss = FlatLoss(model, loss_fn, batches, bn=bn, parameters=parameters)
        self.names = self._loss.names
        self.numels = self._loss.numels
        super().__init__(
            sum(self.numels),
            dtype=self._loss.dtype,
            device=self._loss.device,
            blocks=tuple(zip(self.names, self.numels, strict=True)),
            weights=batches.sizes,
        )
        self._kept: tuple[Tensor, ...] | None = None
        self._checked = False

    @abstractmethod
    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Tensor, ...]:
        """Return the tensors of one batch, with their graphs, that every product with it begins at."""

    @abstractmethod
    def _times(self, graph: tuple[Tensor, ...], v: Tensor) -> Tensor:
        """Return A_b v (n,), leaving the graph usable."""

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        wide = rows.double()
        totals, forms = torch.zeros_like(wide), wide.new_empty(len(rows), len(self._loss.batches))
        projections = None if onto is None else wide.new_empty(*forms.shape, len(onto))
        try:
            with torch.enable_grad(), self._loss.exact():
                for b, (samples, pieces) in enumerate(self._batch_products(rows)):
                    for i, piece in enumerate(pieces):
                        totals[i].add_(piece, alpha=samples / self._loss.batches.samples)
                        forms[i, b] = wide[i] @ piece.double()
                        if onto is not None and projections is not None:
                            projections[i, b] = (onto @ piece).double()
        except RuntimeError as error:
            if "derivative" not in str(error) and "double backward" not in str(error):
                raise
            raise UserError(
                f"an operation of the model has no second derivative; replace it ({error})"
            ) from error
        return [
            Product(total.to(self.dtype), forms[i], None if projections is None else projections[i])
            for i, total in enumerate(totals)
        ]

    def _batch_products(self, rows: Tensor) -> Iterator[tuple[int, Iterator[Tensor]]]:
        for inputs, targets in self._loss.batches:
            graph = self._kept or self._graph(inputs, targets)
            if len(self._loss.batches) == 1:
                self._kept = graph
            yield count(inputs), (self._times(graph, v) for v in rows)

    def _leaf(self) -> Tensor:
        """Return the parameters as a new leaf (n,)."""
        return self._loss.center.clone().requires_grad_(True)

    def _check_used(self, value: Tensor) -> None:
        if not value.requires_grad:
            raise UserError(
                "the loss does not depend on the trainable parameters; check the model and the loss"
            )

    def _check_twice(self, gradient: Tensor) -> None:
        """Refuse a graph with a function that forbids a second derivative.

        ``autograd.grad`` does not visit the node that would raise, and returns a product without that term.
        """
        if not self._checked and _once_differentiable(gradient):
            raise UserError("an autograd.Function of the model is marked once_differentiable; replace it")
        self._checked = True


def pulled(outputs: Tensor, leaf: Tensor, cotangent: Tensor, *, again: bool = False) -> Tensor:
    """Return Jᵀu of ``outputs`` as a function of ``leaf``, zero where they do not depend on it.

    ``again``: itself differentiable. The graph stays.
    """
    if not outputs.requires_grad:
        return torch.zeros_like(leaf)
    (product,) = torch.autograd.grad(
        outputs, leaf, cotangent, retain_graph=True, create_graph=again, materialize_grads=True
    )
    return product


def _once_differentiable(gradient: Tensor) -> bool:
    seen: set[Node] = set()
    waiting = [gradient.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return any(node.name() == "torch::autograd::Error" for node in seen)
