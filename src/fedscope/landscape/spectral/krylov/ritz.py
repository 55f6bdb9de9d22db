"""Which eigenvalues are wanted, and how well a Lanczos process knows them.

Symbols: m rows of the basis, θ and s eigenvalues and eigenvectors of the projected T, k values wanted.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.krylov.unseen import MOST
from fedscope.landscape.spectral.spectral_results import Eigenpairs

Which = Literal["largest", "smallest", "both", "magnitude"]
OWN = 5e-3  # of an eigenvalue's own size: what it is known to, and what another beside it may differ by


def most_products(pairs: int) -> int:
    """Return the products at which a search for so many eigenpairs gives up, unless it is told otherwise."""
    return 300 + 30 * pairs


@dataclass(frozen=True)
class Wanted:
    """How many eigenvalues are wanted at the lower and at the upper end, or of the largest magnitudes."""

    low: int = 0
    high: int = 0
    either: int = 0

    @classmethod
    def of(cls, n: int, k: int, which: Which) -> "Wanted":
        if which not in get_args(Which):
            raise UserError(f"which is {which!r}; choose one of {', '.join(get_args(Which))}")
        most = n // 2 if which == "both" else n
        if not 1 <= k <= most:
            ends = "at both ends" if which == "both" else "at an end"
            raise UserError(f"k = {k} eigenpairs {ends} of an operator of size {n}; choose 1 to {most}")
        if which == "magnitude":
            return cls(either=k)
        return cls(low=0 if which == "largest" else k, high=0 if which == "smallest" else k)

    @property
    def pairs(self) -> int:
        return self.low + self.high + self.either

    @property
    def alone(self) -> bool:
        """Whether no end has several, so that copies of an eigenvalue do not count."""
        return max(self.low, self.high, self.either) == 1

    def among(self, ascending: Tensor) -> Tensor:
        return self.outermost(ascending, min(self.pairs, len(ascending)))

    def outermost(self, ascending: Tensor, size: int) -> Tensor:
        """Return the positions of so many of the ascending values, shared among the ends, descending."""
        if self.either:
            return ascending.abs().argsort(descending=True, stable=True)[:size].sort(descending=True).values
        low, count = round(size * self.low / self.pairs), len(ascending)
        return torch.cat([torch.arange(count - (size - low), count).flip(0), torch.arange(low).flip(0)])


@dataclass(frozen=True)
class Goal:
    """How well values are to be known, for a spectrum of a known size."""

    wanted: Wanted
    tol: float
    size: float  # largest magnitude of the spectrum
    scale: float  # that ``tol`` is relative to
    eps: float
    error: float = 0.0  # of a product with a unit vector, a root mean square; 0 where products are exact

    def tolerances(self, values: Tensor) -> Tensor:
        """Return the residual that each value must reach.

        That is ``tol`` of the scale, where several are wanted and for the smallest also ``OWN`` of its own
        size; and never less than ten roundings of the spectrum's size. Of products with errors it is half of
        that, for the other half is theirs, and never less than twice the error.
        """
        goal = torch.full_like(values, self.tol * self.scale)
        own = OWN * values.abs()
        if self.wanted.low or not self.wanted.alone:
            goal = torch.minimum(goal, own)
        goal = goal.clamp(min=10 * self.eps * self.size)
        return (goal / 2).clamp(min=2 * self.error) if self.error else goal

    def margins(self, values: Tensor) -> Tensor:
        """Return how much further out than each value no other may lie."""
        least = max(10 * self.eps * self.size, 2 * self.error, torch.finfo(values.dtype).tiny)
        return (max(OWN, self.tol) * values.abs()).clamp(min=least)

    def reaches(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return for each of the (k,) wanted values, descending, below and above which none may be missed.

        That is −∞ or ∞ where the other end is not wanted.
        """
        margins, wanted = self.margins(values), self.wanted
        if wanted.either:
            return -values.abs() - margins, values.abs() + margins
        nowhere, at_top = torch.full_like(values, math.inf), torch.arange(len(values)) < wanted.high
        return torch.where(at_top, -nowhere, values - margins), torch.where(at_top, values + margins, nowhere)

    @property
    def most(self) -> float:
        """The probability that is accepted of having missed a value, at an end."""
        return MOST / 2 if self.wanted.either else MOST

    def limits(self, values: Tensor) -> tuple[float, float]:
        """Return below and above which no other value may lie than the (k,) wanted ones, descending."""
        ends, wanted = self.margins(values), self.wanted
        if wanted.either:
            reach = float((values.abs() + ends).min())
            return -reach, reach
        low = float((values - ends)[len(values) - wanted.low]) if wanted.low else -math.inf
        high = float((values + ends)[wanted.high - 1]) if wanted.high else math.inf
        return low, high


@dataclass(frozen=True)
class Ritz:
    """The wanted eigenpairs of T."""

    positions: Tensor  # (k,) among the ascending eigenvalues of T
    values: Tensor  # (k,) descending
    coefficients: Tensor  # (m, k)
    residuals: Tensor  # (k,)
    goal: Goal
    inner: float  # a value of T within the spectrum, far from the ends that are wanted

    @classmethod
    def of(cls, krylov: Lanczos, wanted: Wanted, tol: float) -> "Ritz":
        theta, s = torch.linalg.eigh(krylov.projected)
        positions, size = wanted.among(theta), float(theta.abs().max())
        values, chosen = theta[positions], s[:, positions]
        scale = size if wanted.low or wanted.either else abs(float(theta[-1]))
        goal = Goal(wanted, tol, size, scale, krylov.eps, krylov.error / math.sqrt(krylov.steps))
        if wanted.either:
            inner = theta[theta.abs().argmin()]
        else:
            inner = theta[len(theta) // 2] if wanted.low and wanted.high else theta[-1 if wanted.low else 0]
        residuals = krylov.residuals(values, chosen)
        return cls(positions, values, chosen, residuals, goal, float(inner))

    @property
    def text(self) -> str:
        value, worst = float(self.values[0]), float(self.residuals.max())
        reachable = float(self.goal.tolerances(self.values).min())
        asked = float(replace(self.goal, error=0.0, eps=0.0).tolerances(self.values).min())
        why = "error" if self.goal.error else "rounding"
        limit = f", the products' {why} allows {reachable:.1e}" if reachable > asked else ""
        return f"λ ≈ {value:.4g}, residuals up to {worst:.1e} (asked: {min(asked, reachable):.1e}{limit})"

    @property
    def converged(self) -> bool:
        return bool((self.residuals <= self.goal.tolerances(self.values)).all())


def seen(krylov: Lanczos, goal: Goal, values: Tensor, random_part: float = 1.0) -> Tensor:
    """Return which of the wanted values are known to be the i-th, as far as they are known, (k,) bool."""
    if krylov.spans_all:
        return torch.ones(len(values), dtype=torch.bool)
    if not krylov.finite:
        return torch.zeros(len(values), dtype=torch.bool)
    (low, high), theta = goal.reaches(values), torch.linalg.eigvalsh(krylov.projected)
    outside = (low < theta[0]) & (high > theta[-1])
    found = [
        out and all(krylov.has_seen(end, goal.most, random_part) for end in ends)
        for out, *ends in zip(outside.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    return torch.tensor(found)


def verified(op: Operator, found: Eigenpairs, goal: Goal, *, certain: bool) -> Eigenpairs:
    """Return pairs whose products were not exact with their residuals for the exact operator.

    One product more with each unit vector v, Ãv within δ of Av, gives ‖Av − λv‖ ≤ ‖Ãv − λv‖ + δ, whatever
    errors the basis was made with. ``certain``: convergence also takes that every value is known to be the
    i-th.
    """
    residuals = torch.empty_like(found.values)
    products = op.products(found.vectors.T.contiguous())
    for i, (v, product) in enumerate(zip(found.vectors.T, products, strict=True)):
        defect = product.vector.double() - float(found.values[i]) * v.double()
        residuals[i] = float(defect.norm()) + product.error
    small = residuals <= goal.tolerances(found.values)
    known = found.certified & small
    return replace(
        found,
        residuals=residuals,
        certified=known,
        converged=bool((known if certain else small).all()),
    )
