"""How good a model is on a split."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split
from fedscope.federated.workers import Workers

SCALARS = 20_000_000  # of a batch of inputs


@torch.no_grad()
def evaluate(
    model: nn.Module,
    split: Split,
    pipeline: Pipeline,
    batch_size: int | None = None,
    workers: Workers | None = None,
) -> tuple[float, float]:
    """Return (mean cross-entropy, accuracy) of ``model`` in eval mode over the whole split.

    Batches are of 1,000 images, or of fewer large ones. The workers take them in turn; they are summed in
    their order, so that the result is the same for any number of workers.
    """
    workers = workers or Workers()
    model.eval()
    size = batch_size or min(1000, max(1, SCALARS // split.images.shape[1:].numel()))
    batches = torch.arange(len(split), device=split.labels.device).split(size)
    sums = torch.zeros(len(batches), 2, dtype=torch.float64, device=split.labels.device)
    own = range(workers.rank, len(batches), workers.size)
    nothing = torch.empty(0, 0, device=split.labels.device)
    ahead = pipeline.ahead(split.images, [(batches[index], nothing) for index in own])
    for index, (rows, _) in zip(own, ahead, strict=True):
        inputs = pipeline.test(split.images, rows).contiguous(memory_format=torch.channels_last)
        logits, labels = model(inputs), split.labels[rows]
        sums[index, 0] = cross_entropy(logits, labels, reduction="sum")
        sums[index, 1] = (logits.argmax(1) == labels).sum()
    loss, correct = workers.total(sums).cpu().sum(0).tolist()
    return loss / len(split), correct / len(split)
