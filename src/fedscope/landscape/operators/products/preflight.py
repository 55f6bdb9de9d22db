"""What products rest on, looked at on a few samples before the first one, and what their graphs cost."""

import torch
from torch import Tensor

from fedscope.landscape.loss.checks import (
    check_repeats,
    explained,
    once_differentiable,
    once_error,
)
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.mean_loss import check_loss
from fedscope.landscape.loss.trees import flat, some
from fedscope.landscape.operators.graph_cache import Build, Cost, measured

OTHERWISE = (
    ", or take products by finite differences of gradients, which need no second derivative "
    "(--products finite-differences, products='finite-differences')"
)


def preflight(loss: FlatLoss, build: Build, *, twice: bool, otherwise: str = "") -> Cost:
    """Return the bytes of graphs, after checking what the products rest on.

    Args:
        loss: that they are of.
        build: makes a graph.
        twice: whether a second derivative is taken.
        otherwise: what may be done where one is missing, for the end of the message.

    Raises:
        UserError: outputs that differ from one evaluation to the next, a loss that is random or a sum, or an
            operation without a second derivative.
    """
    inputs, targets = loss.batches[0]
    if not loss.coupled:
        inputs, targets = some(inputs, slice(SAMPLE)), some(targets, slice(SAMPLE))

    def outputs() -> Tensor:
        return flat(loss.outputs(inputs))

    def whole() -> Tensor:
        return loss.of(loss.outputs(inputs), targets)

    with torch.enable_grad(), loss.exact(), explained(loss.model, whole, otherwise):
        check_repeats(outputs)
        check_loss(loss)
        weights = (*loss.model.parameters(), *loss.model.buffers())
        graph, cost = measured(build, (inputs, targets), whole=loss.coupled, weights=weights)
        if twice and once_differentiable(graph):
            raise once_error(loss.model, whole, otherwise)
    return cost
