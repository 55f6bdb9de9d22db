"""The loss of a task: cross-entropy of a sample's class or of its sequence's tokens, or the user's own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

Loss = Callable[[Any, Any], Tensor]
"""(output, targets) ↦ the scalar mean over the samples."""
IGNORED = -100  # a target that is padding: PyTorch's own mark


@dataclass(frozen=True)
class TaskLoss:
    """Cross-entropy as a mean over samples, or another such mean.

    Of sequences it is the mean over all tokens of the split: a sample's loss is the sum over its tokens,
    divided by the mean number n̄ of tokens per sample. So sequences of unequal length may be cut into batches
    and dealt to clients in any way: their means, weighted by samples, are the mean over all tokens. With the
    mean over each batch's own tokens they would not be.
    """

    tokens: float | None = None  # n̄; None: a sample has one class
    own: Loss | None = None  # the user's own; outputs are then what it takes

    @property
    def function(self) -> Loss:
        return self.own or self

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over the samples of logits (B, C) or (B, T, V), targets (B,) or (B, T)."""
        if self.own is not None:
            return self.own(logits, targets)
        return cross_entropy(logits, targets) if self.tokens is None else self.each(logits, targets).mean()

    def total(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.own is not None:
            return len(targets) * self.own(logits, targets)
        if self.tokens is None:
            return cross_entropy(logits, targets, reduction="sum")
        return self.each(logits, targets).sum()

    def each(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's loss, (B,); of the user's own loss the mean of the batch, for each."""
        if self.own is not None:
            return self.own(logits, targets).expand(len(targets))
        if self.tokens is None:
            return cross_entropy(logits, targets, reduction="none")
        losses = cross_entropy(
            logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        return losses.view(targets.shape).sum(1) / self.tokens

    def weights(self, targets: Tensor) -> Tensor:
        """Return what each sample counts in means of the others, (B,): 1, or its tokens over n̄."""
        if self.tokens is None:
            return torch.ones(len(targets), dtype=torch.int64, device=targets.device)
        return (targets != IGNORED).sum(1) / self.tokens

    def right(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's right answers, (B,): 0 or 1, or right tokens over n̄; NaN without classes."""
        if self.own is not None and not is_class(logits, targets):
            return torch.full((len(targets),), torch.nan, device=targets.device)
        if self.tokens is None:
            return (logits.argmax(1) == targets).to(logits.dtype)
        return (logits.argmax(-1) == targets).sum(1).to(logits.dtype) / self.tokens


def is_class(outputs: object, targets: Tensor) -> bool:
    """Say whether outputs are logits (B, C) of the classes (B,) that are wanted."""
    classes = targets.ndim == 1 and targets.dtype == torch.int64
    return classes and isinstance(outputs, Tensor) and outputs.ndim == 2 and outputs.shape[1] > 1
