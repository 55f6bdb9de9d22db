"""The empirical Fisher information: the mean of the outer products of the samples' own gradients.

F = JᵀJ/N with the Jacobian J of the samples' losses, which is never formed: Jv is the derivative of u ↦ Jᵀu,
which is linear, in the direction v, as for :class:`fedscope.landscape.operators.gauss_newton.GaussNewton`.

A batch's loss L_b may weight its samples, by classes or by their numbers of tokens: L_b = Σ_i c_i ℓ_i with
ℓ_i the loss of sample i alone. What sample i contributes, ℓ̃_i = n_b c_i ℓ_i, has L_b as its mean. The weights
are read off the gradients in the outputs o: ∂L_b/∂o_i = c_i ∂ℓ_i/∂o_i.
"""

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.loss.checks import close, largest, slack
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.recomputed.logits import Logits
from fedscope.landscape.loss.sample_curvature import fisher_forms
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree, split
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.gauss_newton import jacobian_of, outputs_of, pushed_through
from fedscope.landscape.operators.products.definition import Definition
from fedscope.landscape.operators.products.graph_cache import Graph


class EmpiricalFisher(LossOperator):
    """F = (1/N)·Σ_i g_i g_iᵀ, g_i the gradient of what sample i contributes to the loss at its label.

    No per-sample gradient is formed: with ℓ̃ the contributions (n_b,) as a function of w, F_b v = Jᵀ(Jv)/n_b
    for their Jacobian J. The loss must be a weighted mean of what it is for each sample alone (the weights
    do not depend on the network), and the model must treat its samples one by one. Arguments as of
    :class:`LossOperator`.

    Raises:
        UserError: as of :class:`LossOperator`; or BatchNorm uses the batch's own statistics; or, at the first
            product, the loss is no weighted mean over samples.
    """

    _one_by_one = True

    def _graph(self, inputs: Tree, targets: Tree) -> tuple[Graph, Tensor]:
        losses, whole = self._contributed(inputs, targets)
        return jacobian_of(self._loss, losses), whole.detach()

    def _contributed(self, inputs: Tree, targets: Tree) -> tuple[Tensor, Tensor]:
        outputs = self._outputs(inputs)
        each = (outputs[i : i + 1] for i in range(outputs.shape[0]))
        alone = [self._loss.of(*pair) for pair in zip(each, split(targets, 1), strict=True)]
        self._loss.check_used(torch.stack(alone))
        whole = self._loss.of(outputs, targets)
        return _contributions(outputs, alone, whole), whole

    def _outputs(self, inputs: Tree) -> Tensor:
        outputs = outputs_of(self._loss, inputs)
        return outputs.tracked() if isinstance(outputs, Logits) else outputs

    def _times(self, graph: Graph, v: Tensor) -> Tensor:
        losses, pushed = graph[-2], pushed_through(self._loss, graph, v)
        return joined(pulled((losses,), self._loss.parameters, (pushed / len(losses),)))

    def _definition(self) -> Definition:
        def values(batch: Batch) -> Tensor:
            losses, whole = self._contributed(*batch)
            return torch.cat([whole.detach()[None], losses.detach()])

        def product(batch: Batch, change: Tensor) -> Tensor:
            losses, _ = self._contributed(*batch)
            return joined(pulled((losses,), self._loss.parameters, (change / len(losses),)))

        graph = lambda batch: self._graph(*batch)  # noqa: E731
        return Definition(graph, lambda _, batch: self._loss.gradient(*batch), values, product, self._times)

    def _forms(self, inputs: Tree, targets: Tree, v: Tensor) -> Tensor:
        return fisher_forms(self._loss, inputs, targets, v)  # of a plain mean: the caller compares theirs


def _contributions(outputs: Tensor, alone: list[Tensor], whole: Tensor) -> Tensor:
    """Return ℓ̃ (n,), whose mean is the batch's loss, with its graph."""
    own, shared = _rows(torch.stack(alone).sum(), outputs), _rows(len(alone) * whole, outputs)
    absent = ~own.isfinite().all(1) & (shared == 0).all(1)  # all padding: it has no loss, and no part in one
    own = own.masked_fill(absent[:, None], 0)
    if not bool(own.isfinite().all() & shared.isfinite().all()):
        return torch.stack(alone)  # what is not finite stays so
    room = slack(outputs.dtype) * torch.cat([own, shared]).norm(dim=1).max()
    if absent.any() or bool(((shared - own).norm(dim=1) > room).any()):
        weights = _weights(own, shared)
        if bool(((shared - weights[:, None] * own).norm(dim=1) > room).any()):
            raise _no_mean()
        terms = zip(weights.to(whole.dtype), alone, absent.tolist(), strict=True)
        losses = torch.stack([torch.zeros_like(loss) if none else w * loss for w, loss, none in terms])
    else:
        losses = torch.stack(alone)
    mean, size = losses.detach().mean(), largest(outputs)
    told = (own != 0).any(1) | (losses == 0)  # else the weight of a sample without a gradient is not known
    if bool(told.all()) and not close(mean, whole.detach(), outputs.dtype, beside=size):
        raise _no_mean()
    return losses


def _weights(own: Tensor, shared: Tensor) -> Tensor:
    """Return the w (n,) with shared_i ≈ w_i own_i, for rows (n, …); 1 where own_i is 0."""
    squares = own.square().sum(1)
    return torch.where(squares > 0, (own * shared).sum(1) / squares.clamp(min=1e-300), 1.0)


def _rows(loss: Tensor, outputs: Tensor) -> Tensor:
    """Return ∂loss/∂outputs, (n, …) as (n, numbers of an output), float64.

    Of logits by chunks it is that in what they are computed from: a sample's weight is in this as well.
    """
    point = outputs.inputs if isinstance(outputs, Logits) else outputs
    (gradient,) = torch.autograd.grad(loss, point, retain_graph=True, materialize_grads=True)
    return gradient.reshape(len(point), -1).double()


def _no_mean() -> UserError:
    return UserError(
        "the loss of a batch is no weighted mean of the losses of its samples alone, so that no sample has a "
        "gradient of its own; take the Hessian or the Gauss–Newton matrix"
    )
