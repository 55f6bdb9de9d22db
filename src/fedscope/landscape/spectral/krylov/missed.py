"""Whether eigenvectors that were found leave an eigenvalue further out: a copy, or one near to them.

A Lanczos process with a start of its own takes the eigenvectors' complement. Either one of its Ritz values
converges beyond those found, which is one that was missed; or its start tells that, but with a small
probability, there is none (:mod:`fedscope.landscape.spectral.krylov.unseen`), whatever its multiplicity.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from fedscope.landscape.operators.base import Operator, Product, Wrapper
from fedscope.landscape.operators.basis.basis_rows import without
from fedscope.landscape.operators.basis.projections import through
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.ritz import Goal


class Deflated(Wrapper):
    """(1 − P) A (1 − P) + c·P, P on the orthonormal rows V (r, n): c takes the place of their eigenvalues.

    Attributes:
        along: V A v of each product, (r, m) float64: what the projection took away.
    """

    def __init__(self, base: Operator, rows: Tensor, shift: float) -> None:
        super().__init__(base)
        self._rows, self._shift = rows, shift
        self.along = torch.zeros(len(rows), 0, dtype=torch.float64)

    def _apply(self, rows: Tensor, onto: Tensor | None) -> list[Product]:
        inside = without(self._rows, without(self._rows, rows))
        outer = None if onto is None else through(onto, partial(without, self._rows))
        found = self._base._apply(inside, outer)
        images = [(self._rows @ product.vector).double().cpu() for product in found]
        self.along = torch.cat([self.along, *(image[:, None] for image in images)], dim=1)
        return [
            replace(one, vector=without(self._rows, one.vector) + self._shift * (v - within))
            for one, v, within in zip(found, rows, inside, strict=True)
        ]


@dataclass(frozen=True)
class Look:
    """A process in the complement of eigenvectors, and what it found there."""

    krylov: Lanczos
    beyond: Tensor  # positions of converged values beyond the limits among the ascending Ritz values
    along: Tensor  # (r, m) float64: V A Qᵀ, with the eigenvectors V and the process's basis Q

    def residuals(self, theta: Tensor, s: Tensor) -> Tensor:
        return torch.hypot(self.krylov.residuals(theta, s), (self.along @ s).norm(dim=0))


def look(
    op: Operator,
    found: Tensor,
    goal: Goal,
    limits: tuple[float, float],
    shift: float,
    *,
    generator: torch.Generator,
    begin: Callable[..., Lanczos],
    most: int,
    after: Callable[[int], None],
) -> Look:
    """Look in the complement of orthonormal rows ``found`` (r, n) for eigenvalues below or above ``limits``.

    A limit is ±∞ for an end that is not wanted; ``shift`` lies between the limits. Nothing is found if there
    is none but with a small probability, if ``most`` products were taken, or if one was not finite.
    """
    n = op.shape[0]
    draw = torch.randn(n, generator=generator, device=generator.device, dtype=torch.float64)
    start = draw.to(op.device)
    for _ in range(2):
        start = without(found.double(), start)
    deflated = Deflated(op, found, shift)
    krylov = begin(deflated, start, dimension=n - len(found))
    beyond = torch.zeros(0, dtype=torch.long)
    while krylov.steps < min(most, krylov.dimension):
        krylov.step()
        after(krylov.matvecs)
        if not krylov.finite:
            break
        theta, s = torch.linalg.eigh(krylov.projected)
        further = ((theta > limits[1]) | (theta < limits[0])).nonzero().flatten()
        if not len(further) and all(krylov.has_seen(limit, goal.most) for limit in limits):
            break
        residuals = krylov.residuals(theta[further], s[:, further])
        if len(further) and bool((residuals <= goal.tolerances(theta[further])).all()):
            beyond = further
            break
    return Look(krylov, beyond, deflated.along)
