"""Is a loss a mean over samples? Everything here that weights batches by their counts needs it to be."""

import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.landscape.batches import Batches
from fedscope.landscape.flatloss import FlatLoss, LossFunction
from fedscope.landscape.trees import count, some

_ROUNDING = 1e-5  # of a float32 mean over a batch, relative


@torch.no_grad()
def check_mean(model: nn.Module, loss_fn: LossFunction, batches: Batches) -> None:
    """Compare the loss of the first batch with the mean over its two parts, weighted by their samples.

    They differ for a sum, a mean over unequal numbers of tokens, or a loss between samples. Then the result
    would depend on how the samples fall into batches, and a single batch is required.

    Raises:
        UserError: the loss is no scalar; or they differ, and there are several batches.
    """
    loss = FlatLoss(model, loss_fn, batches)
    center = loss.split(loss.center)
    inputs, targets = next(iter(loss.batches))
    samples, cut = count(inputs), count(inputs) // 3
    with loss.exact():
        whole = float(loss.on_batch(center, inputs, targets))
        if len(batches) == 1 or not cut:
            return
        values = []
        for rows in (slice(None, cut), slice(cut, None)):
            values.append(float(loss.on_batch(center, some(inputs, rows), some(targets, rows))))
    mean = (cut * values[0] + (samples - cut) * values[1]) / samples
    if abs(mean - whole) > _ROUNDING * max(map(abs, (whole, *values))):
        raise UserError(
            f"the loss is no mean over samples: {whole:.6g} for a batch of {samples}, {mean:.6g} for "
            "its parts; average over each sample's own terms, then over samples, or take all as one batch "
            f"with --batch-size {batches.samples}"
        )
