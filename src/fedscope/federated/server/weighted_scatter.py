"""The weighted scatter of vectors about their mean, in one pass and without cancellation.

Σ p_k‖x_k − x̄‖² as Σ p_k‖x_k‖² − ‖x̄‖² loses all digits where the vectors are close to each other. Here blocks
are merged: scatters add up, and two means that differ by d add W₁W₂/(W₁ + W₂)·‖d‖² (Chan, Golub, LeVeque
1979).
"""

import torch
from torch import Tensor


class WeightedScatter:
    """Accumulates mean and scatter of vectors in float64, block by block, in the order of the calls."""

    def __init__(self, size: int):
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.scatter = 0.0  # Σ p_k‖x_k − x̄‖²
        self._weight = 0.0

    def add(self, block: Tensor, weights: Tensor) -> None:
        """Add vectors (k, size) with positive ``weights`` (k,), both float64."""
        new = float(weights.sum())
        mean = weights @ block / new if len(block) > 1 else block[0]
        if len(block) > 1:
            self.scatter += float(weights @ (block - mean).square().sum(1))
        total = self._weight + new
        apart = mean - self.mean
        self.scatter += self._weight * new / total * float(apart @ apart)
        self.mean.add_(apart, alpha=new / total)
        self._weight = total
