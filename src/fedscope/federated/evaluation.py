"""How good a model is on a split."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedscope.data.augment import Pipeline
from fedscope.data.datasets import Split


@torch.no_grad()
def evaluate(
    model: nn.Module, split: Split, pipeline: Pipeline, batch_size: int = 1000
) -> tuple[float, float]:
    """Return (mean cross-entropy, accuracy) of ``model`` in eval mode over the whole split."""
    model.eval()
    loss = torch.zeros((), dtype=torch.float64)
    correct = 0
    for images, labels in zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True):
        logits = model(pipeline.test(images))
        loss += cross_entropy(logits, labels, reduction="sum").double().cpu()
        correct += int((logits.argmax(1) == labels).sum())
    return float(loss / len(split)), correct / len(split)
