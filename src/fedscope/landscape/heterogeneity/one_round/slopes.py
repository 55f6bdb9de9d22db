"""Each batch's loss at several weights, and its slope along several directions."""

import torch
from torch import Tensor

from fedscope.landscape.loss.derivatives import joined, pulled
from fedscope.landscape.loss.flat_loss import FlatLoss


@torch.no_grad()
def batch_losses(loss: FlatLoss, points: Tensor) -> Tensor:
    """Return each batch's mean loss (m, B) at m flat vectors of weights (m, n), in float64.

    The loss must not be that of an operator that is still to make products: its graphs are of one point.
    """
    found = torch.zeros(len(points), len(loss.batches), dtype=torch.float64)
    for i, point in enumerate(points):
        loss.load(point.to(loss.center))
        with loss.plainly(), loss.exact():
            for b, batch in enumerate(loss.batches):
                found[i, b] = loss.on_batch(*batch).double()
    loss.load(loss.center)
    return found


def batch_slopes(loss: FlatLoss, directions: Tensor) -> Tensor:
    """Return ∇loss_b · v (m, B) at the loss's own weights, for each batch and m directions v (m, n)."""
    found = torch.zeros(len(directions), len(loss.batches), dtype=torch.float64)
    loss.load(loss.center)
    rows = directions.to(loss.center)
    for b, batch in enumerate(loss.batches):
        with torch.enable_grad(), loss.plainly(), loss.exact():
            value = loss.on_batch(*batch)
            slope = joined(pulled((value,), loss.parameters, (torch.ones_like(value),)))
        found[:, b] = rows.double() @ slope.double()
    return found
