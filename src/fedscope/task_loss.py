"""The loss of a task: cross-entropy of each sample's class, or of the tokens that follow in its sequence."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100  # a target that is padding: PyTorch's own mark


@dataclass(frozen=True)
class TaskLoss:
    """Cross-entropy as a mean over samples.

    Of sequences it is the mean over all tokens of the split: a sample's loss is the sum over its tokens,
    divided by the mean number n̄ of tokens per sample. So sequences of unequal length may be cut into batches
    and dealt to clients in any way: their means, weighted by samples, are the mean over all tokens. With the
    mean over each batch's own tokens they would not be.
    """

    tokens: float | None = None  # n̄; None: a sample has one class

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over the samples of logits (B, C) or (B, T, V), targets (B,) or (B, T)."""
        return cross_entropy(logits, targets) if self.tokens is None else self.each(logits, targets).mean()

    def total(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the sum over the samples."""
        if self.tokens is None:
            return cross_entropy(logits, targets, reduction="sum")
        return self.each(logits, targets).sum()

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's loss, (B,)."""
        if self.tokens is None:
            return cross_entropy(logits, targets, reduction="none")
        losses = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(targets.shape).sum(1) / self.tokens

    def weights(self, targets: Tensor) -> Tensor:
        """Return what each sample counts in means of the others, (B,): 1, or its tokens over n̄."""
        if self.tokens is None:
            return torch.ones_like(targets)
        return (targets != IGNORED).sum(1) / self.tokens

    def right(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's right answers, (B,): 0 or 1, or its right tokens over n̄."""
        if self.tokens is None:
            return (logits.argmax(1) == targets).to(logits.dtype)
        return (logits.argmax(-1) == targets).sum(1).to(logits.dtype) / self.tokens
