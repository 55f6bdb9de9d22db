"""Searches for the largest loss in a ball: one ascent step, Auto-PGD, or vertices of a box.

A search is a function of (f, geometry, c, ρ) with f(δ) ↦ (loss, gradient). Each is a lower bound of the
maximum. The geometry says where it may go, the objective what it climbs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from fedscope.choices import ReadingName
from fedscope.errors import UserError
from fedscope.landscape.sharpness.geometry import Geometry
from fedscope.streams import random_signs, torch_stream

Ascended = Callable[[Tensor], tuple[float, Tensor]]
"""δ (n,) ↦ the loss at w + δ and its gradient (n,)."""
_STARTS = 3  # vertices that a search begins at
_MOMENTUM = 0.75  # weight of the new point
_SHARE = 0.75  # of the steps between two checkpoints that must have succeeded


class Search(Protocol):
    """What looks for the largest loss."""

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
        """Return the loss at δ = 0 and the largest that was found."""


@dataclass(frozen=True)
class OneStep:
    """The ascent step of SAM (Foret et al. 2021, equation 2) and of ASAM (Kwon et al. 2021).

    It goes to the maximum of the linearised loss, whatever the loss is there: for p = 2 at ρ·c²g/‖c ⊙ g‖.
    """

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
        """Return the loss at δ = 0 and after the step."""
        before, g = f(torch.zeros_like(c))
        after, _ = f(rho * geometry.steepest(g, c))
        return before, after


@dataclass(frozen=True)
class AutoPGD:
    """Projected gradient ascent with steps that halve by themselves (Croce and Hein 2020, algorithm 1).

    It begins at δ = 0 with steps of 2ρ, and at its checkpoints halves them where fewer than three quarters of
    the steps succeeded, or where neither step nor maximum changed since the last checkpoint.

    Args:
        steps: 20 in Andriushchenko et al. (2023).
        reading: ``paper`` is algorithm 1 in the coordinates δ ⊘ c, in which the ball is round: momentum
            δ + ¾ (z − δ) + ¼ (δ − δ₋), projected; a step succeeds by a larger loss than the last; and after a
            halving the search goes on from the maximum.
            ``code`` is the program of Andriushchenko et al.: the new point is ¾ z + ¼ δ₋ with z the
            projected step and δ₋ the point before this one; a step succeeds by a new maximum; and after a
            halving only the next gradient is taken at the maximum, the perturbation stays where it is. In an
            adaptive ball of p = 2 its direction c ⊙ g and its Euclidean projection do not fit: of a linear
            loss it ends at δ ∝ c³g, where the maximum is at c²g.

    Raises:
        UserError: fewer than 1 step, or another reading.
    """

    steps: int = 20
    reading: ReadingName = "paper"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"steps is {self.steps}; Auto-PGD takes at least 1")
        if self.reading not in ("code", "paper"):
            raise UserError(f"reading is {self.reading!r}; choose code or paper")

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
        """Return the loss at δ = 0 and the largest of all steps."""
        exact, halvings = self.reading == "paper", _Halvings(checkpoints(self.steps), rho)
        towards = geometry.steepest if exact else geometry.ascent
        project = geometry.project_scaled if exact else geometry.project
        delta = before = best_at = torch.zeros_like(c)
        start, g = f(delta)
        loss, best, best_g = start, start, g
        for i in range(self.steps):
            z = project(delta + halvings.step * towards(g, c), c, rho)
            delta, before = self._moved(i, z, delta, before), delta
            if exact:
                delta = project(delta, c, rho)
            last, (loss, g) = loss, f(delta)
            rose = loss > (last if exact else best)
            if loss > best:
                best, best_g, best_at = loss, g, delta
            if not exact:
                halvings.succeeded += rose
            if halvings.halved(i, best):
                g = best_g
                delta = best_at if exact else delta
                loss = best if exact else loss
            if exact:  # algorithm 1 counts the step of a checkpoint after it
                halvings.succeeded += rose
        return start, best

    def _moved(self, i: int, z: Tensor, delta: Tensor, before: Tensor) -> Tensor:
        if self.reading == "code":
            return _MOMENTUM * z + (1 - _MOMENTUM) * before
        return z if i == 0 else delta + _MOMENTUM * (z - delta) + (1 - _MOMENTUM) * (delta - before)


@dataclass(frozen=True)
class Vertices:
    """Ascent from vertex to vertex of a box, from several of them (ours); of p = ∞ alone.

    A convex function is largest over a box at a vertex. From one of them the next is ρ·c ⊙ sign ∇L, where its
    linearisation is largest; a convex loss does not fall on the way, and stays where no sign changes. Which
    maximum is met depends on the start. There are three: the vertex of SAM's step, the best one of the batch
    before, and random ones. Each takes a quarter of the steps, and what is left continues from the highest.

    Args:
        steps: gradients beside the one at δ = 0.
        seed: of the random vertices.
        batch: which batch it is, whose vertices are its own.
        known: a perturbation (n,) to begin at.

    Raises:
        UserError: fewer than 1 step.
    """

    steps: int = 20
    seed: int = 0
    batch: int = 0
    known: Tensor | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise UserError(f"steps is {self.steps}; a search takes at least 1")

    def after(self, best: Tensor) -> "Vertices":
        """Return the search of the next batch, with the largest loss of this one's at ``best``."""
        return replace(self, batch=self.batch + 1, known=best)

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
        """Return the loss at δ = 0 and the largest of all steps."""
        start, g = f(torch.zeros_like(c))
        draws = torch_stream(self.seed, "vertices", self.batch)
        starts = [rho * c * g.sign(), *([] if self.known is None else [self.known])]
        count = max(1, min(_STARTS, self.steps // (_STARTS + 1)))
        while len(starts) < count:
            starts.append(rho * c * random_signs((len(c),), draws).to(c))
        chains, left = list[tuple[float, Tensor]](), self.steps
        for at in starts[:count]:
            best, at, taken = _climbed(f, c, rho, at, self.steps // (count + 1) if count > 1 else left)
            chains.append((best, at))
            left -= taken
        largest = max(start, *(best for best, _ in chains))
        for _, at in sorted(chains, key=lambda chain: -chain[0]):
            best, _, taken = _climbed(f, c, rho, at, left)
            largest, left = max(largest, best), left - taken
        return start, largest


def _climbed(f: Ascended, c: Tensor, rho: float, at: Tensor, steps: int) -> tuple[float, Tensor, int]:
    """Return the largest loss from a vertex on, the vertex to look at next, and how many were looked at."""
    best, before, taken = -math.inf, None, 0
    while taken < steps and (before is None or not torch.equal(at, before)):
        loss, g = f(at)
        best, before, taken = max(best, loss), at, taken + 1
        at = torch.where(g == 0, at, rho * c * g.sign())
    return best, at, taken


class _Halvings:
    """The step, and when it is halved."""

    def __init__(self, at: Sequence[int], rho: float) -> None:
        self._at = at
        self.step, self.succeeded = 2 * rho, 0  # succeeded: steps since the last checkpoint
        self._last, self._before = 0, (2 * rho, math.nan)

    def halved(self, i: int, best: float) -> bool:
        """Say whether step i ends with a halving."""
        if i not in self._at:
            return False
        few = self.succeeded < _SHARE * (i - self._last)
        still = self._before == (self.step, best)
        self._last, self._before, self.succeeded = i, (self.step, best), 0
        if few or still:
            self.step /= 2
        return few or still


def checkpoints(steps: int) -> list[int]:
    """Return the steps ⌈p·steps⌉ at which Auto-PGD may halve; p grows by max(last growth − 0.03, 0.06)."""
    shares, at = [0.0, 0.22], [0, math.ceil(0.22 * steps)]
    while at[-1] < steps and at[-1] != at[-2]:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
        at.append(math.ceil(shares[-1] * steps))
    return at[1:]
