"""Hessian–vector products by central differences of gradients, each with a measured bound on its error.

With the gradients g_k at w + kεu, u = v/‖v‖,

    Hv ≈ ‖v‖·(g_1 − g_{−1}) / 2ε,        d = ‖v‖·(g_2 − 3g_1 + 3g_0 − g_{−1}) / 6ε.

The third difference d is the truncation (ε²/6)·∇⁴L[u, u, u]‖v‖ to leading order, and rounding of standard
deviation σ in each gradient, which leaves σ‖v‖/(√2·ε) in the product, leaves √5/3 σ‖v‖/ε in d: more. So ‖d‖
measures the error, whichever kind it is, and a multiple of it is stated as a bound. Of few coordinates d may
be small by chance: what storing the gradients in the dtype leaves at least is added. What neither shows are
coordinates that a step does not move, because it is below half a unit in their last place; what H would do
with them is bounded by the curvature seen along the step's own direction, with the same margin.

Only first derivatives are taken, by any kernel: fused attention, bfloat16 activations, a backward that is
once differentiable. Gradients are summed over batches in float64; kinks stay where they are at the weights
(:mod:`fedscope.landscape.operators.products.kinks`), as they do in an exact product.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedscope.landscape.loss.flat_loss import FlatLoss, signs
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.operators.base import Product
from fedscope.landscape.operators.products.kinks import Kinks

MARGIN = 3.0  # times the third difference: the bound on the error of a product
_STORED = 0.15  # of eps: the standard deviation of half the difference of two numbers, each rounded to eps
_POINTS = {-1: (-1 / 2, -1 / 6), 1: (1 / 2, -3 / 6), 2: (0.0, 1 / 6)}  # k ↦ its shares of Hv·ε and of d·ε
_CENTER = 3 / 6
_HALVINGS = 60
_KNOWN = 0.3  # relative difference below which a difference is known at all
_RISE = 4.0  # over the least one: rounding has taken over


Part = tuple[Batch, float]
"""Samples, and their share of those of their batch."""
Sums = Callable[
    [Callable[[int, Tensor], Tensor], Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor | None]
]
"""(b ↦ rows of batch b, rows, onto) ↦ means over batches, forms and projections, as of ``BatchMean``."""


@dataclass(frozen=True)
class DifferenceStep:
    """A step and what a difference with it gave along the direction it was found for."""

    length: float  # ε
    slope: Tensor  # (n,) float64: the difference
    error: float  # relative difference to that with twice the step


def balanced(difference: Callable[[float], Tensor], longest: float) -> DifferenceStep:
    """Return the step of least error, from ``longest`` down by halves, of differences along a unit vector.

    The truncation of a central difference falls as ε², the rounding in it grows as 1/ε. How two differences
    with steps ε and 2ε differ shows both: from the largest step down that falls and then rises, and the first
    minimum is taken (Moré and Wild 2012 find steps of noisy functions so). Below it lies what must not be
    taken for precision: a step too small to move rounded activations gives the same wrong difference again.
    """
    length, coarse = longest, difference(longest)
    best = DifferenceStep(longest, coarse, math.inf)
    for _ in range(_HALVINGS):
        length /= 2
        fine = difference(length)
        size = float(fine.norm())
        error = float((coarse - fine).norm()) / size if size else 0.0
        if error < best.error:  # not where either is not finite
            best = DifferenceStep(length, fine, error)
        elif best.error < _KNOWN and not error < _RISE * best.error:
            break
        coarse = fine
    return best


class FiniteDifferences:
    """The products of a loss's Hessian by differences of its gradients.

    Args:
        loss: whose weights are moved, and put back.
        parts: b ↦ the parts that batch b is cut into, each with its share of the samples.
        gradient: the gradient of the mean loss at the center, (n,) float64.

    Attributes:
        step: ε, and the Hessian's product with the unit vector that it was found for.
    """

    def __init__(
        self, loss: FlatLoss, parts: Callable[[int], Iterable[Part]], gradient: Callable[[], Tensor]
    ) -> None:
        self._loss, self._parts, self._gradient = loss, parts, gradient
        self._kinked = True  # until some samples have told

    @cached_property
    def step(self) -> DifferenceStep:
        """The step at which both errors balance, along a direction of large curvature of the first batch.

        That direction is the product with random signs. Others have a smaller third derivative as a rule; one
        with a larger has a larger error, which its own third difference shows.
        """
        center = self._loss.center
        longest = float(center.double().norm()) or 1.0
        along = self._loss.moving(signs(center)).double()
        first = balanced(self._along(along / along.norm()), longest)
        size = float(first.slope.norm())
        if not size:
            return first
        return balanced(self._along(first.slope / size), min(longest, 8 * first.length))

    @cached_property
    def _at_center(self) -> Tensor:
        return self._gradient()

    def batch_products(self, b: int, rows: Tensor) -> Tensor:
        """Return the m products of batch b, then its shares of the third differences: (2m, n) float64.

        The gradient at the center is left out of the latter: ``products`` adds that of the mean loss.
        """
        found = torch.zeros(2 * len(rows), rows.shape[1], dtype=torch.float64, device=rows.device)
        sizes = rows.double().norm(dim=1).tolist()
        for samples, of_batch in self._parts(b):
            pieces = self._pieces(samples)
            for i, (v, size) in enumerate(zip(rows, sizes, strict=True)):
                for k, (first, third) in _POINTS.items() if size else ():
                    slope = self._gradient_at(samples, v, k * self.step.length / size, pieces)
                    scale = of_batch * size / self.step.length
                    found[i].add_(slope, alpha=first * scale)
                    found[len(rows) + i].add_(slope, alpha=third * scale)
        self._loss.load(self._loss.center)
        return found

    def products(self, rows: Tensor, onto: Tensor | None, sums: Sums) -> list[Product]:
        m = len(rows)
        totals, forms, projections = sums(
            lambda b, both: self.batch_products(b, both[:m]), rows.repeat(2, 1), onto
        )
        found = []
        for i, v in enumerate(rows):
            inner = None if projections is None else projections[i]
            errors = self._errors(v, totals[i], totals[m + i])
            found.append(Product(totals[i].to(v.dtype), forms[i], inner, *errors))
        return found

    def _errors(self, v: Tensor, product: Tensor, third: Tensor) -> tuple[float, float]:
        """Return ``Product.error`` and ``form_error`` of a product by the batches' mean third difference."""
        wide = v.double()
        size = float(wide.norm())
        d = third + _CENTER * size / self.step.length * self._at_center
        stored = _STORED * torch.finfo(v.dtype).eps * float(self._at_center.norm()) * size / self.step.length
        lost = MARGIN * float(self._unmoved(v, size).norm())
        curvature = max(float(self.step.slope.norm()), float(product.norm()) / size if size else 0.0)
        form = MARGIN * float(wide @ d)
        return (
            MARGIN * float(d.norm()) + stored + curvature * lost,
            form + math.copysign(float(product.norm()) * lost, form),
        )

    def _unmoved(self, v: Tensor, size: float) -> Tensor:
        """Return v where a step does not change the weights, and 0 elsewhere."""
        center = self._loss.center
        v = self._loss.moving(v)
        return v * (torch.add(center, v, alpha=self.step.length / size if size else 0.0) == center)

    def _along(self, unit: Tensor) -> Callable[[float], Tensor]:
        v = unit.to(self._loss.center.dtype)

        def difference(length: float) -> Tensor:
            total = torch.zeros_like(unit)
            for samples, of_batch in self._parts(0):
                pieces = self._pieces(samples)
                for sign in (1, -1):
                    slope = self._gradient_at(samples, v, sign * length, pieces)
                    total.add_(slope, alpha=sign * of_batch / (2 * length))
            self._loss.load(self._loss.center)
            return total

        return difference

    @torch.no_grad()
    def _pieces(self, samples: Batch) -> Kinks | None:
        """Return the pieces that the kinked functions are on at the center; None where there are none."""
        if not self._kinked:
            return None
        self._loss.load(self._loss.center)
        pieces = Kinks()
        with self._loss.exact(), self._loss.plainly(), pieces:
            self._loss.on_batch(*samples)
        self._kinked = pieces.any
        return pieces if self._kinked else None

    def _gradient_at(self, samples: Batch, v: Tensor, length: float, pieces: Kinks | None) -> Tensor:
        self._loss.load(torch.add(self._loss.center, self._loss.moving(v), alpha=length))
        with pieces.rewind() if pieces else nullcontext():
            return self._loss.gradient(*samples)
