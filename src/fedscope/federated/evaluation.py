"""How good a model is on a split."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split
from fedscope.federated.workers import Workers


@torch.no_grad()
def evaluate(
    model: nn.Module, split: Split, pipeline: Pipeline, batch_size: int = 1000, workers: Workers | None = None
) -> tuple[float, float]:
    """Return (mean cross-entropy, accuracy) of ``model`` in eval mode over the whole split.

    The workers take the batches in turn; batches are summed in their order, so that the result is the same
    for any number of workers.
    """
    workers = workers or Workers()
    model.eval()
    batches = list(zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True))
    sums = torch.zeros(len(batches), 2, dtype=torch.float64, device=split.labels.device)
    for index, (images, labels) in list(enumerate(batches))[workers.rank :: workers.size]:
        inputs = pipeline.test(images).contiguous(memory_format=torch.channels_last)
        logits = model(inputs)
        sums[index, 0] = cross_entropy(logits, labels, reduction="sum")
        sums[index, 1] = (logits.argmax(1) == labels).sum()
    loss, correct = workers.total(sums).cpu().sum(0).tolist()
    return loss / len(split), correct / len(split)
