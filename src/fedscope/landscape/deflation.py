"""How far to enlarge a Krylov basis before probes are cheaper.

The variance of zᵀRz over ±1 probes is at most 2‖R‖²_F, and the remainder R = (1 − P)A(1 − P) of a basis with
A Qᵀ = Qᵀ T + q bᵀ has ‖R‖²_F = ‖A‖²_F − ‖T‖²_F − 2‖b‖². So what a Krylov step lowers the variance by is
known exactly once it is taken: 2(α² + 2β²). Probes to a standard error ε are needed as variance/ε², so that
steps are worth their products while each lowers the variance by more than ε². (For a converged eigenvalue θ
that took c products: θ > ε √(c/2).)

Symbols: m basis vectors, M probes.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fedscope.landscape.subspace import Subspace

Extend = Callable[[int], Subspace]
"""steps ↦ the same basis with as many rows more, or fewer (none) where no more are possible."""


def variance_saved(known: Subspace, last: int) -> float:
    """Return by how much the ``last`` ones of the m Krylov steps lowered 2‖R‖²_F, on average."""
    return 2 * (_explained(known, len(known.coupling)) - _explained(known, -last)) / last


def _explained(known: Subspace, rows: int) -> float:
    """Return ‖T‖² + 2‖b‖² of the basis' first rows; the next row of T is their coupling."""
    T = known.projected
    coupling = known.coupling if rows == len(T) else T[rows, :rows]
    return float((T[:rows, :rows] ** 2).sum() + 2 * (coupling**2).sum())


def deflated_further(probes: Tensor, images: Tensor, known: Subspace, rows: int) -> Tensor:
    """Return zᵀR'z (M,) float64 for a basis that has grown, from products R z taken with its first ``rows``.

    R' = (1 − N)R(1 − N) for the projector N on the new rows, whose products are known.

    Args:
        probes: z, (M, n).
        images: R z, (M, n).
        known: the basis as it is now.
        rows: those it had when the products were taken.
    """
    forms = probes.new_zeros(len(probes), dtype=torch.float64)
    onto = probes.new_zeros(len(probes), len(known.basis) - rows, dtype=torch.float64)
    onto_image = onto.clone()
    pieces = zip(*(every.split(_WIDTH, 1) for every in (known.basis[rows:], probes, images)), strict=True)
    for new, z, image in ((part.double() for part in parts) for parts in pieces):
        forms += (z * image).sum(1)
        onto += z @ new.T
        onto_image += image @ new.T
    T = known.projected[rows:, rows:].to(probes.device)
    return forms + ((onto @ T - 2 * onto_image) * onto).sum(1)


_WIDTH = 1 << 16  # columns converted to float64 at a time
