"""An operator whose samples have rank one: A = (1/N) Σ_i f_i f_iᵀ for features f_i."""

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product


class Features(Operator):
    """A = FᵀF/N for F (N, n) float64, in batches of equal size."""

    def __init__(self, features: Tensor, batches: int = 32) -> None:
        samples, n = features.shape
        super().__init__(n, dtype=torch.float64, device="cpu", weights=(samples // batches,) * batches)
        self._batches = features.view(batches, -1, n)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        found = []
        for v in rows:
            images = torch.einsum("bsn,bs->bn", self._batches, self._batches @ v) / self._batches.shape[1]
            found.append(Product(images.mean(0), images @ v, None if onto is None else images @ onto.T))
        return found

    def sample_forms(self, v: Tensor) -> Tensor:
        """Return (f_iᵀv)²."""
        return (self._batches @ v).square().flatten()
