"""How far to enlarge a Krylov basis before probes are cheaper.

The variance of zᵀRz over ±1 probes is at most 2‖R‖²_F, and the remainder R = (1 − P)A(1 − P) of a basis with
A Qᵀ = Qᵀ T + q bᵀ has ‖R‖²_F = ‖A‖²_F − ‖T‖²_F − 2‖b‖². So what a Krylov step lowers the variance by is
known exactly once it is taken: 2(α² + 2β²). Probes to a standard error ε are needed as variance/ε², so that
steps are worth their products while each lowers the variance by more than ε². (For a converged eigenvalue θ
that took c products: θ > ε √(c/2).)

Symbols: m basis vectors, M probes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.basis.basis_rows import total
from fedscope.landscape.operators.basis.krylov_basis import Subspace
from fedscope.landscape.spectral.krylov.lanczos import Lanczos

MEMORY = 2 << 30  # bytes of a basis
STEPS = 8  # Krylov steps between two looks at what they save

Extend = Callable[[int], Subspace]
"""steps ↦ the same basis with as many rows more, or fewer (none) where no more are possible."""


def affordable(op: Operator) -> int:
    return MEMORY // (op.shape[0] * op.dtype.itemsize)


def growing(
    op: Operator,
    known: Subspace | None,
    generator: torch.Generator,
    max_basis: int,
    folder: Path | None = None,
    *,
    by_batch: bool = True,
) -> Extend:
    """Return what lets the basis of ``known`` grow by Lanczos steps, or begins one at random.

    ``folder`` and ``by_batch`` are of one that is begun: where its file is, and whether it knows each batch's
    part.
    """
    if known is None:
        start = torch.randn(op.shape[0], generator=generator, device=generator.device, dtype=torch.float64)
        process = Lanczos(op, start, generator=generator, by_batch=by_batch, folder=folder)
    else:
        process = Lanczos.resumed(op, known, generator=generator)

    def extend(steps: int) -> Subspace:
        room = min(max_basis, op.shape[0]) - process.steps
        for _ in range(min(steps, room)):
            if process.finite:
                process.step()
        return process.subspace()

    return extend


def variance_saved(known: Subspace, last: int) -> float:
    """Return by how much the ``last`` ones of the m Krylov steps lowered 2‖R‖²_F, on average."""
    return 2 * (_explained(known, len(known.coupling)) - _explained(known, -last)) / last


def _explained(known: Subspace, rows: int) -> float:
    """Return ‖T‖² + 2‖b‖² of the basis' first rows; the next row of T is their coupling."""
    T = known.projected
    coupling = known.coupling if rows == len(T) else T[rows, :rows]
    return float((T[:rows, :rows] ** 2).sum() + 2 * (coupling**2).sum())


def deflate_further(images: Tensor, probes: Tensor, known: Subspace, rows: int) -> None:
    """Turn ``images``, R z (M, n) for the first ``rows`` of the basis, into R'z for all of it, in place.

    With the projector N on the new rows, R'z = (1 − N)R(1 − N)z = (1 − N)Rz − q b_Nᵀz_N.
    """

    def seen() -> Iterator[Tensor]:
        for columns, new in known.rows.wide(rows):
            parts = (every[:, columns].double() @ new.T for every in (probes, images))
            yield torch.stack(list(parts))

    z_onto, image_onto = total(seen())
    coupled = z_onto @ known.coupling[rows:].to(images.device)
    for columns, new in known.rows.wide(rows):
        known_part = image_onto @ new + torch.outer(coupled, known.outside[columns].double())
        images[:, columns] -= known_part.to(images.dtype)
