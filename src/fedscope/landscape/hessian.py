"""The Hessian of a model's mean loss, by double backward (Pearlmutter 1994)."""

import torch
from torch import Tensor

from fedscope.landscape.graphs import Graph
from fedscope.landscape.lossoperator import LossOperator, pulled


class Hessian(LossOperator):
    """H = Σ_b (n_b/N)·∇²loss_b(w). Arguments and errors as of :class:`LossOperator`."""

    def _graph(self, inputs: Tensor, targets: Tensor) -> Graph:
        loss = self._loss.on_batch(self._loss.split(self._leaf), inputs, targets)
        self._check_used(loss)
        (gradient,) = torch.autograd.grad(loss, self._leaf, create_graph=True)
        return (gradient,)

    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        (gradient,) = graph  # without a graph of its own where the loss is linear in every parameter
        return pulled(gradient, self._leaf, v)
