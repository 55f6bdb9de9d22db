"""The Hessian of a model's mean loss, by double backward (Pearlmutter 1994)."""

import torch
from torch import Tensor

from fedscope.landscape.lossoperator import LossOperator, pulled
from fedscope.landscape.trees import Tree


class Hessian(LossOperator):
    """H = Σ_b (n_b/N)·∇²loss_b(w). Arguments and errors as of :class:`LossOperator`."""

    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Tensor, ...]:
        leaf = self._leaf()
        loss = self._loss.on_batch(self._loss.split(leaf), inputs, targets)
        self._check_used(loss)
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
        self._check_twice(gradient)
        return leaf, gradient

    def _times(self, graph: tuple[Tensor, ...], v: Tensor) -> Tensor:
        leaf, gradient = graph  # without a graph of its own where the loss is linear in every parameter
        return pulled(gradient, leaf, v)
