"""The Hessian of a model's mean loss, by double backward (Pearlmutter 1994) or by finite differences."""

from dataclasses import replace

import torch
from torch import Tensor

from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.sample_curvature import hessian_forms
from fedscope.landscape.loss.trees import Tree
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.products.definition import Definition, of_gradients
from fedscope.landscape.operators.products.graph_cache import Graph


class Hessian(LossOperator):
    """H = Σ_b (n_b/N)·∇²loss_b(w). Arguments and errors as of :class:`LossOperator`."""

    _of_gradients = True

    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        loss = self._loss.on_batch(inputs, targets)
        self._loss.check_used(loss)
        if self.differences:
            return (loss,), loss.detach()
        gradients = pulled((loss,), self._loss.parameters, (torch.ones_like(loss),), again=True)
        return gradients, loss.detach()

    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        return joined(pulled(graph, self._loss.parameters, self._loss.split(v)))

    def _definition(self) -> Definition:
        by_gradients = of_gradients(self._loss)
        if self.differences:
            return by_gradients
        return replace(by_gradients, graph=lambda batch: self._graph(*batch), times=self._times)

    def _forms(self, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
        return hessian_forms(self._loss, inputs, targets, v)
