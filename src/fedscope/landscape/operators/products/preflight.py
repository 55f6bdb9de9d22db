"""What products rest on, looked at on a few samples before the first one, and what their graphs cost."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedscope.landscape.loss.checks import (
    check_repeats,
    check_symmetric,
    explained,
    once_differentiable,
    once_error,
)
from fedscope.landscape.loss.flat_loss import SAMPLE, FlatLoss
from fedscope.landscape.loss.mean_loss import check_loss
from fedscope.landscape.loss.trees import flat, some
from fedscope.landscape.operators.graph_cache import Build, Cost, Graph, measured

OTHERWISE = (
    ", or take products by finite differences of gradients, which need no second derivative "
    "(--products finite-differences, products='finite-differences')"
)


def preflight(
    loss: FlatLoss, build: Build, times: Callable[[Graph, Tensor], Tensor] | None, otherwise: str = ""
) -> Cost:
    """Return the bytes of graphs, after checking what the products rest on.

    Args:
        loss: that they are of.
        build: makes a graph.
        times: the product with the graph's samples, which is checked; None where no second derivative is
            taken.
        otherwise: what may be done where one is missing, for the end of the message.

    Raises:
        UserError: outputs that differ from one evaluation to the next, a loss that is random or a sum, an
            operation without a second derivative, or products that are not symmetric.
    """
    inputs, targets = loss.batches[0]
    if not loss.coupled:
        inputs, targets = some(inputs, slice(SAMPLE)), some(targets, slice(SAMPLE))

    def outputs() -> Tensor:
        return flat(loss.outputs(inputs))

    with torch.enable_grad(), loss.exact(), explained(loss.model, outputs, otherwise):
        check_repeats(outputs)
        check_loss(loss)
        weights = (*loss.model.parameters(), *loss.model.buffers())
        graph, cost = measured(build, (inputs, targets), whole=loss.coupled, weights=weights)
        if times:
            if once_differentiable(graph):
                raise once_error(loss.model, outputs, otherwise)
            check_symmetric(lambda v: times(graph, v), loss.center)
    return cost
