"""Searches for the largest loss in a ball: one ascent step, Auto-PGD, or vertices of a box.

A search is a function of (f, geometry, c, ρ) with f(δ) ↦ (loss, gradient). Each is a lower bound of the
maximum. The geometry says where it may go, the objective what it climbs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from fedscope.choices import ReadingName
from fedscope.errors import UserError
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.streams import random_signs, torch_stream

Ascended = Callable[[Tensor], tuple[float, Tensor]]
"""δ (n,) ↦ the loss at w + δ and its gradient (n,)."""
_MOMENTUM = 0.75  # weight of the new point
_SHARE = 0.75  # of the steps between two checkpoints that must have succeeded


class Search(Protocol):
    """What looks for the largest loss."""

    @property
    def steps(self) -> int:
        """Gradients that it takes beside the one at δ = 0."""

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
        """Return the loss at δ = 0 and the largest that was found."""


@dataclass(frozen=True)
class OneStep:
    """The ascent step of SAM (Foret et al. 2021, equation 2) and of ASAM (Kwon et al. 2021).

    It goes to the maximum of the linearised loss, whatever the loss is there: for p = 2 at ρ·c²g/‖c ⊙ g‖.
    """

    steps: ClassVar[int] = 1

    def __call__(self, f: Ascended, geometry: Geometry, c: Tensor, rho: float) -> tuple[float, float]:
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
    linearisation is largest; a convex loss does not fall on the way, and stays where no sign changes. Where
    it falls, the next step from the highest point is half as long. Which maximum is met depends on the start.
    There are three: the vertex of SAM's step; the opposite one, since near a minimum the loss rises about as
    much on the other side; and the best one of the batch before, a random one in the first. Each takes a
    quarter of the steps, and what is left continues from the highest, then from random ones.

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
        start, g = f(torch.zeros_like(c))
        reach, draws, left = rho * c, torch_stream(self.seed, "vertices", self.batch), self.steps

        def anywhere() -> Tensor:
            return reach * random_signs((len(c),), draws).to(c)

        each = max(1, self.steps // 4)
        starts = reach * g.sign(), -reach * g.sign(), anywhere() if self.known is None else self.known
        climbs = [_Climb(at) for at in starts[: min(3, each)]]
        for climb in climbs:
            left -= climb.rise(f, reach, each)
        for climb in sorted(climbs, key=lambda climb: -climb.loss):
            left -= climb.rise(f, reach, left)
        while left:
            climbs.append(_Climb(anywhere()))
            left -= climbs[-1].rise(f, reach, left)
        return start, max(start, *(climb.loss for climb in climbs))


class _Climb:
    """A way up in the box of |δ| ≤ ``reach``, and the highest point of it."""

    def __init__(self, at: Tensor) -> None:
        self.loss = -math.inf
        self._best, self._signs, self._step = at, torch.zeros_like(at, dtype=torch.int8), 2.0

    def rise(self, f: Ascended, reach: Tensor, steps: int) -> int:
        """Go on by so many steps, or until no coordinate moves; return how many were taken."""
        for taken in range(steps):
            ahead = self._best + self._step * reach * self._signs
            ahead = torch.minimum(torch.maximum(ahead, -reach), reach)
            if self.loss > -math.inf and torch.equal(ahead, self._best):
                return taken
            loss, g = f(ahead)
            if loss > self.loss:
                self.loss, self._best, self._signs = loss, ahead, g.sign().to(torch.int8)
            else:
                self._step /= 2
        return steps


class _Halvings:
    """The step, and when it is halved."""

    def __init__(self, at: Sequence[int], rho: float) -> None:
        self._at = at
        self.step, self.succeeded = 2 * rho, 0  # succeeded: steps since the last checkpoint
        self._last, self._before = 0, (2 * rho, math.nan)

    def halved(self, i: int, best: float) -> bool:
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
