"""A positive relative of the Hessian: the generalised Gauss–Newton matrix.

Its Jacobian J is never formed: Jv is the derivative of u ↦ Jᵀu, which is linear, in the direction v (a
"double backward", as in Pearlmutter's product), so that any model with a second derivative will do.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.recomputed.heads import HeadGraph, weighted
from fedscope.landscape.loss.recomputed.logits import Logits
from fedscope.landscape.loss.sample_curvature import gauss_newton_forms
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.products.definition import Definition, of_outputs
from fedscope.landscape.operators.products.graph_cache import Graph


class GaussNewton(LossOperator):
    """G = Σ_b (n_b/N)·JᵀH_f J, J the outputs' Jacobian, H_f the Hessian of the batch's loss in its outputs.

    The generalised Gauss–Newton matrix (Schraudolph 2002): the Hessian without the curvature of the outputs
    themselves, positive semi-definite for a convex loss such as cross-entropy, where it is also the Fisher
    information with labels drawn from the model. Arguments and errors as of :class:`LossOperator`.
    """

    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        return self._chunked(inputs, targets) or self._whole(inputs, targets)

    def _chunked(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor] | None:
        """Return the graph of what goes into an output layer with many classes; None where that won't do."""
        logits = self._loss.logits
        if not logits.found or logits.whole:
            return None
        with logits():
            outputs = one_tensor(self._loss.outputs(inputs))
        with logits.apart() as heads:
            loss = self._loss.of(outputs, targets)
        if logits.whole or not isinstance(outputs, Logits) or not weighted(loss, heads):
            logits.whole = logits.whole or "a loss that is no weighted sum over positions"
            return None
        if not any(head.used for head in heads):
            return None
        return HeadGraph.of(heads, self._loss.parameters), loss.detach()

    def _whole(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        outputs = one_tensor(self._loss.outputs(inputs))
        jacobian = jacobian_of(self._loss, outputs)
        point = outputs.detach().requires_grad_(True)
        loss = self._loss.of(point, targets)
        self._loss.check_used(loss)
        (slope,) = torch.autograd.grad(loss, point, create_graph=True)
        return (*jacobian, point, slope), loss.detach()

    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        if isinstance(graph, HeadGraph):
            return joined(graph.times(self._loss.parameters, self._loss.split(v)))
        *jacobian, point, slope = graph
        pushed = pushed_through(self._loss, jacobian, v)
        return joined(pulled((jacobian[-2],), self._loss.parameters, pulled((slope,), (point,), (pushed,))))

    def _definition(self) -> Definition:
        def product(batch: Batch, change: Tensor) -> Tensor:
            outputs = one_tensor(self._loss.outputs(batch[0]))
            pushed, at = change.view_as(outputs), outputs.detach()
            step = torch.finfo(at.dtype).eps ** (1 / 3) * (1 + at.abs().max()) / pushed.abs().max()
            ends = [self._loss_slope(at + sign * step * pushed, batch[1]) for sign in (1, -1)]
            return joined(pulled((outputs,), self._loss.parameters, ((ends[0] - ends[1]) / (2 * step),)))

        found = of_outputs(self._loss, lambda batch: self._graph(*batch), self._times, product)
        return replace(found, loose=1e-2)  # of the difference in it

    def _loss_slope(self, outputs: Tensor, targets: Tree) -> Tensor:
        point = outputs.requires_grad_(True)
        loss = self._loss.of(point, targets)
        return pulled((loss,), (point,), (torch.ones_like(loss),))[0]

    def _forms(self, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
        return gauss_newton_forms(self._loss, inputs, targets, v)


def one_tensor(outputs: object) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise UserError(
            f"the model returns {type(outputs).__name__}; this operator needs a model that returns one tensor"
        )
    return outputs


def outputs_of(loss: FlatLoss, inputs: Tree) -> Tensor:
    """Return what the network returns, logits of many classes without their numbers."""
    with nullcontext() if loss.logits.whole else loss.logits():
        return one_tensor(loss.outputs(inputs))


def jacobian_of(loss: FlatLoss, outputs: Tensor) -> Graph:
    """Return Jᵀu by parameter, linear in u, of the Jacobian J of ``outputs``; then these, and u."""
    loss.check_used(outputs)
    dual = torch.ones_like(outputs, requires_grad=True)  # at 0 some kernels take the logarithm of 0
    return (*pulled((outputs,), loss.parameters, (dual,), again=True), outputs, dual)


def pushed_through(loss: FlatLoss, jacobian: Sequence[Tensor], v: Tensor) -> Tensor:
    """Return Jv."""
    *transposed, _, dual = jacobian
    return pulled(transposed, (dual,), loss.split(v))[0]
