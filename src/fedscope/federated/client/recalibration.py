"""BatchNorm re-estimated after local training, as FedAlign's published code does to measure its clients.

Running statistics are averaged over nine batches, a last one of a single image left out. The published code
takes the upload before that; a method may also upload the new statistics.
"""

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.data.augment import Pipeline
from fedscope.data.loading.datasets import Split
from fedscope.federated.record.flat import FlatModel

BATCHES = 9
STREAM = "post_bn"  # of the random numbers; another name would draw others


@torch.no_grad()
def recalibrate(
    model: FlatModel,
    split: Split,
    pipeline: Pipeline,
    rows: Tensor,
    batch_size: int,
    generator: torch.Generator,
    *,
    keep: bool,
) -> float:
    """Return the accuracy on ``rows`` (n,) with their statistics, which ``keep`` leaves in the model."""
    module, norms = model.module, [m for m in model.module.modules() if isinstance(m, _BatchNorm)]
    values, counters = model.values[0].clone(), model.counters.clone()
    order = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
    draws = pipeline.draw(len(rows), generator).to(rows.device)
    batches = list(zip(order.split(batch_size), draws.split(batch_size, 1), strict=True))
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean
    several = [batch for batch in batches if len(batch[0]) > 1]  # one image has no variance of its own
    for chosen, drawn in (several or batches)[:BATCHES]:
        module(pipeline.train(split.images, chosen, drawn))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
    right = sum(
        int((module(pipeline.train(split.images, chosen, drawn)).argmax(1) == split.labels[chosen]).sum())
        for chosen, drawn in batches
    )
    module.train()
    if not keep:
        model.values[0] = values
        model.counters.copy_(counters)
    return right / len(rows)
