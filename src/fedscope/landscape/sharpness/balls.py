"""The balls in which sharpness looks: {δ : ‖δ ⊘ c‖_p ≤ ρ} with c = 1, or c = |w| for adaptive sharpness.

(Kwon et al. 2021; Andriushchenko et al. 2023, section 3.) A weight of 0 does not move in an adaptive
ball. Symbols: δ (n,) perturbation, c (n,) the coordinates' scales, ρ radius, g (n,) gradient.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.errors import UserError

_STEPS = 60  # of Newton's iteration, which doubles the digits in each


@dataclass(frozen=True)
class Geometry:
    """A norm and whether each coordinate is measured in units of its weight."""

    p: float = 2
    adaptive: bool = False

    def __post_init__(self) -> None:
        if self.p not in (2, math.inf):
            raise UserError(f"p is {self.p}; sharpness is defined with p = 2 or p = infinity")

    def scales(self, weights: Tensor) -> Tensor:
        return weights.abs() if self.adaptive else torch.ones_like(weights)

    def noise(self, c: Tensor, generator: torch.Generator) -> Tensor:
        """Return a draw for ρ = 1: N(0, diag c²) for p = 2, uniform in the ball for p = ∞.

        Drawn on the generator's device in float32, so that it does not depend on where the network is.
        """
        where = {"generator": generator, "device": generator.device}
        normal = self.p == 2
        z: Tensor = (torch.randn if normal else torch.rand)(len(c), **where)  # type: ignore[call-overload]
        return c * (z if normal else 2 * z - 1).to(c)

    def steepest(self, g: Tensor, c: Tensor) -> Tensor:
        """Return the δ of the ball of radius 1 with the largest gᵀδ: c²g/‖c ⊙ g‖, or c ⊙ sign g."""
        if self.p == 2:
            return c * _unit(c * g)
        return c * g.sign()

    def ascent(self, g: Tensor, c: Tensor) -> Tensor:
        """Return the direction of Andriushchenko et al.'s program: c ⊙ g/‖g‖, or c ⊙ sign g.

        For p = 2 and c = |w| it is not the steepest one.
        """
        return c * _unit(g) if self.p == 2 else c * g.sign()

    def project_scaled(self, delta: Tensor, c: Tensor, rho: float) -> Tensor:
        """Return the point of the ball whose δ ⊘ c is nearest to that of δ."""
        if self.p == math.inf:
            return self.project(delta, c, rho)
        length = float(torch.where(c > 0, delta / c, 0.0).double().norm())
        return torch.where(c > 0, delta * min(1.0, rho / max(length, 1e-300)), 0.0)

    def project(self, delta: Tensor, c: Tensor, rho: float) -> Tensor:
        """Return the point of the ball that is nearest to δ in the Euclidean norm."""
        if self.p == math.inf:
            return torch.minimum(torch.maximum(delta, -rho * c), rho * c)
        if not self.adaptive:
            return delta * min(1.0, rho / max(float(delta.double().norm()), 1e-300))
        return _onto_ellipsoid(delta.double(), c.double(), rho).to(delta)


def _unit(vector: Tensor) -> Tensor:
    length = float(vector.double().norm())
    return vector / length if length != 0 else vector  # NaN stays


def _onto_ellipsoid(delta: Tensor, c: Tensor, rho: float) -> Tensor:
    """Return δ ⊙ c²/(c² + μ) with the μ ≥ 0 that puts it on ‖δ ⊘ c‖ = ρ; δ itself where it is inside.

    The secular equation 1/‖·‖ = 1/ρ is nearly linear in μ: Newton's iteration from 0 rises to its root.
    """
    free = c > 0
    y, squares = delta * free, torch.where(free, c * c, 1.0)
    mu = 0.0
    for _ in range(_STEPS):
        scaled = y * squares.sqrt() / (squares + mu)
        length = float(scaled.norm())
        if not length > rho * (1 + 1e-12):
            break
        slope = float((scaled**2 / (squares + mu)).sum()) / length**3  # of 1/‖·‖
        mu += (1 / rho - 1 / length) / slope
    return y * squares / (squares + mu)
