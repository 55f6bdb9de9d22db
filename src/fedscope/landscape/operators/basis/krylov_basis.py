"""An orthonormal basis with its products by an operator, and the remainder of the operator.

For orthonormal rows Q (m, n), T = Q A Qᵀ and a unit vector q outside: A Qᵀ = Qᵀ T + q bᵀ. With P = QᵀQ the
operator splits into a part that Q, T, q and b know exactly and a remainder,

    A = Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ + (1 − P) A (1 − P),

so an estimator that has a Krylov basis at hand need only estimate the remainder ("deflation": Girard 1987;
Meyer, Musco, Musco and Woodruff 2021 for a sketch instead of a Krylov basis).

Symbols: n coordinates, m basis vectors, B batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.basis_rows import BasisRows, total
from fedscope.landscape.operators.basis.projections import Conjugated
from fedscope.landscape.printing import Printed


@dataclass(frozen=True, repr=False)
class Subspace(Printed):
    """An orthonormal basis Q with A's products: A Qᵀ = Qᵀ T + q bᵀ."""

    rows: BasisRows  # Q (m, n), one vector per row
    projected: Tensor  # (m, m) float64 on the CPU: T
    batches: Tensor | None  # (B, m, m) float64 on the CPU: Q A_b Qᵀ, where A is a mean over batches
    outside: Tensor  # (n,) in the operator's dtype: q, or zeros where the basis is invariant
    coupling: Tensor  # (m,) float64 on the CPU: b
    matvecs: int  # products it cost
    beyond: Tensor | None = None  # (B, m, d) float64 on the CPU: Q A_b (1 − P) S, E[S Sᵀ] = 1, if sketched
    error: float = 0.0  # a bound on ‖E‖_F, E what the products with Qᵀ are off by (``Product.error``)

    @property
    def basis(self) -> Tensor:
        """Q (m, n) in the operator's dtype; a copy unless the rows are plain."""
        return self.rows.tensor

    @property
    def trace(self) -> float:
        """Tr T: the exact part of tr A."""
        return float(self.projected.trace())

    def diagonal(self) -> Tensor:
        """Return the exact part of A's diagonal, (n,) float64: that of Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ."""
        projected, coupling = self.projected.to(self.rows.device), self.coupling.to(self.rows.device)
        outside, pieces = self.outside.double(), []
        for columns, wide in self.rows.wide():
            own = (wide * (projected @ wide)).sum(0)
            pieces.append(own + 2 * outside[columns] * (coupling @ wide))
        return torch.cat(pieces)

    def known_products(self, rows: Tensor) -> Tensor:
        """Return K v for rows v (r, n): K = Qᵀ T Q + (Qᵀ b) qᵀ + q (Qᵀ b)ᵀ, in float64, (r, n)."""

        def seen() -> Iterator[Tensor]:
            for columns, q in self.rows.wide():
                wide = rows[:, columns].double()
                beside = wide @ self.outside[columns].double()
                yield torch.cat([wide @ q.T, beside[:, None]], dim=1)

        found = total(seen())
        onto, beside = found[:, :-1], found[:, -1]
        projected, coupling = self.projected.to(rows.device), self.coupling.to(rows.device)
        inside = onto @ projected + torch.outer(beside, coupling)
        coupled = (onto @ coupling)[:, None]
        images = [inside @ q + coupled * self.outside[columns].double() for columns, q in self.rows.wide()]
        return torch.cat(images, dim=1)

    def kept(self, device: torch.device | str) -> "Subspace":
        """Return a copy on a device, for later products by A alone: without the batches' parts."""
        return replace(
            self,
            rows=self.rows.kept(device),
            outside=self.outside.to(device, copy=True),
            batches=None,
            beyond=None,
        )

    def without(self, v: Tensor) -> Tensor:
        return self.rows.without(v)


class Remainder(Conjugated):
    """(1 − P) A (1 − P): what orthonormal rows (r, n) leave of an operator."""

    def __init__(self, base: Operator, basis: BasisRows | Tensor) -> None:
        rows = BasisRows.of(basis) if isinstance(basis, Tensor) else basis
        super().__init__(base, rows.without)
