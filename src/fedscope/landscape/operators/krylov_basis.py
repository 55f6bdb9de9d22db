"""An orthonormal basis with its products by an operator, and the remainder of the operator.

For orthonormal rows Q (m, n), T = Q A Qᵀ and a unit vector q outside: A Qᵀ = Qᵀ T + q bᵀ. With P = QᵀQ the
operator splits into a part that Q, T, q and b know exactly and a remainder,

    A = Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ + (1 − P) A (1 − P),

so an estimator that has a Krylov basis at hand need only estimate the remainder ("deflation": Girard 1987;
Meyer, Musco, Musco and Woodruff 2021 for a sketch instead of a Krylov basis).

Symbols: n coordinates, m basis vectors, B batches.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product, Wrapper
from fedscope.landscape.printing import Printed


@dataclass(frozen=True, repr=False)
class Subspace(Printed):
    """An orthonormal basis Q with A's products: A Qᵀ = Qᵀ T + q bᵀ."""

    basis: Tensor  # (m, n) in the operator's dtype: Q, one vector per row
    projected: Tensor  # (m, m) float64 on the CPU: T
    batches: Tensor | None  # (B, m, m) float64 on the CPU: Q A_b Qᵀ, where A is a mean over batches
    outside: Tensor  # (n,) in the operator's dtype: q, or zeros where the basis is invariant
    coupling: Tensor  # (m,) float64 on the CPU: b
    matvecs: int  # products it cost
    beyond: Tensor | None = None  # (B, m, d) float64 on the CPU: Q A_b (1 − P) S, E[S Sᵀ] = 1, if sketched
    error: float = 0.0  # a bound on ‖E‖_F, E what the products with Qᵀ are off by (``Product.error``)

    @property
    def trace(self) -> float:
        """Tr T: the exact part of tr A."""
        return float(self.projected.trace())

    def diagonal(self) -> Tensor:
        """Return the exact part of A's diagonal, (n,) float64: that of Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ."""
        projected, coupling = self.projected.to(self.basis.device), self.coupling.to(self.basis.device)
        pieces = []
        for piece, outside in zip(self.basis.split(_WIDTH, 1), self.outside.split(_WIDTH), strict=True):
            wide = piece.double()
            own = (wide * (projected @ wide)).sum(0)
            pieces.append(own + 2 * outside.double() * (coupling @ wide))
        return torch.cat(pieces)

    def known_products(self, rows: Tensor) -> Tensor:
        """Return K v for rows v (r, n): K = Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ, in float64, (r, n)."""
        onto = rows.new_zeros(len(rows), len(self.basis), dtype=torch.float64)
        beside = rows.new_zeros(len(rows), dtype=torch.float64)
        pieces = [part.split(_WIDTH, 1) for part in (rows, self.basis, self.outside[None])]
        for v, q, outside in zip(*pieces, strict=True):
            wide = v.double()
            onto += wide @ q.double().T
            beside += wide @ outside[0].double()
        projected, coupling = self.projected.to(rows.device), self.coupling.to(rows.device)
        inside = onto @ projected + torch.outer(beside, coupling)
        coupled = (onto @ coupling)[:, None]
        images = [
            inside @ q.double() + coupled * outside.double() for _, q, outside in zip(*pieces, strict=True)
        ]
        return torch.cat(images, dim=1)

    def kept(self, device: torch.device | str) -> "Subspace":
        """Return a copy on a device, for later products by A alone: without the batches' parts."""
        return replace(
            self,
            basis=self.basis.to(device, copy=True),
            outside=self.outside.to(device, copy=True),
            batches=None,
            beyond=None,
        )

    def without(self, v: Tensor) -> Tensor:
        """Return (1 − P) v for (n,) or rows (m, n), in v's dtype."""
        return without(self.basis, v)


def without(basis: Tensor, v: Tensor) -> Tensor:
    """Return (1 − P) v for (n,) or rows (m, n), in v's dtype; P projects on the orthonormal rows (r, n)."""
    return v - (v @ basis.T.to(v.dtype)) @ basis.to(v.dtype)


class Remainder(Wrapper):
    """(1 − P) A (1 − P): what orthonormal rows (r, n) leave of an operator."""

    def __init__(self, base: Operator, basis: Tensor) -> None:
        super().__init__(base)
        self._basis = basis

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        inner = without(self._basis, rows)
        outer = None if onto is None else without(self._basis, onto)
        return [
            replace(product, vector=without(self._basis, product.vector))
            for product in self._base._apply(inner, outer)
        ]


_WIDTH = 1 << 16  # columns converted to float64 at a time
