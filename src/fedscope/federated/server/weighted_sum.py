"""Weighted sums of uploads, in the order in which they are added."""

import torch
from torch import Tensor


class WeightedSum:
    """Accumulates Σ p_k x_k over vectors, one at a time and in float64: a mean where the p_k sum to one."""

    def __init__(self) -> None:
        self._total: Tensor | None = None

    def add(self, vector: Tensor, weight: float = 1.0) -> None:
        if self._total is None:
            self._total = torch.zeros_like(vector, dtype=torch.float64)
        self._total.add_(vector, alpha=weight)

    @property
    def value(self) -> Tensor:
        if self._total is None:
            raise ValueError("the sum of no vectors")
        return self._total
