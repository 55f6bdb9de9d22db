"""The weighted scatter of vectors about their mean, in one pass and without cancellation.

Σ p_k‖x_k − x̄‖² as Σ p_k‖x_k‖² − ‖x̄‖² loses all digits where the vectors are close to each other. Here blocks
are merged: scatters add up, and two means that differ by d add W₁W₂/(W₁ + W₂)·‖d‖² (Chan, Golub, LeVeque
1979). Vectors are taken in pieces that stay in the processor's cache.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

PIECE = 1 << 15  # numbers that are taken to float64 at once


class WeightedScatter:
    """Accumulates vectors less ``origin`` (size,) in float64, block by block, in the order of the calls.

    ``summed``: their unweighted sum too.
    """

    def __init__(self, origin: Tensor, *, summed: bool = False):
        self.origin = origin
        self.mean = torch.zeros(len(origin), dtype=torch.float64)  # Σ p_k x_k / Σ p_k
        self.total = torch.zeros(len(origin) if summed else 0, dtype=torch.float64)  # Σ x_k
        self.scatter = 0.0  # Σ p_k‖x_k − x̄‖²
        self._weight = 0.0

    def add(self, block: Tensor, weights: Tensor) -> Tensor:
        """Add vectors (k, size) with positive ``weights`` (k,) in float64; return ‖x‖² of each, (k,)."""
        new, several = float(weights.sum()), len(block) > 1
        total = self._weight + new
        squares = torch.zeros(len(block), dtype=torch.float64)
        done = 0
        for part, origin, mean in pieces(block, self.origin, self.mean):
            vectors = part.double() - origin
            squares += vectors.square().sum(1)
            if len(self.total):
                self.total[done : done + len(mean)] += vectors.sum(0)
                done += len(mean)
            centre = weights @ vectors / new if several else vectors[0]
            if several:
                self.scatter += float(weights @ (vectors - centre).square().sum(1))
            apart = centre - mean
            self.scatter += self._weight * new / total * float(apart @ apart)
            mean.add_(apart, alpha=new / total)
        self._weight = total
        return squares


def pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield views of the tensors (…, size), piece by piece along the last dimension."""
    most = max(1, PIECE // max(t[..., 0].numel() for t in tensors)) if tensors[0].shape[-1] else 1
    return zip(*(tensor.split(most, -1) for tensor in tensors), strict=True)
