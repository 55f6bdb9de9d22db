"""What the server does with the uploads: a weighted mean, summed in the order they come in."""

import torch
from torch import Tensor


class WeightedMean:
    """Accumulates Σ p_k w_k over upload vectors, one at a time and in float64; the p_k sum to one."""

    def __init__(self) -> None:
        self._total: Tensor | None = None

    def add(self, upload: Tensor, weight: float) -> None:
        """Add one upload (P+Q,) with its share ``weight``."""
        if self._total is None:
            self._total = torch.zeros_like(upload, dtype=torch.float64)
        self._total.add_(upload, alpha=weight)

    @property
    def value(self) -> Tensor:
        """The mean of what was added, (P+Q,) float64."""
        if self._total is None:
            raise ValueError("the mean of no uploads")
        return self._total
