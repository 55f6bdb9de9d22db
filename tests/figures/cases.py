"""Surfaces and spectra with known shapes, for the tests of the figures."""

import math
from typing import Any

import torch

from fedscope.landscape.records import density_entry, finite
from fedscope.landscape.results import Axis, Density, Estimate, Surface


def bowl(
    *, curvature: float = 10.0, floor: float = 0.2, span: float = 1.0, points: int = 11, bad: int = 0
) -> Surface:
    """A quadratic bowl, floor + curvature·(a² + b²)/2; the first ``bad`` grid points are NaN or infinite."""
    line = torch.linspace(-span, span, points, dtype=torch.float64)
    loss = floor + 0.5 * curvature * (line[:, None] ** 2 + line[None, :] ** 2)
    loss.view(-1)[:bad] = torch.tensor([math.nan, math.inf]).repeat(bad)[:bad]
    return Surface(
        axes=(Axis("ε₀", line), Axis("ε₁", line)),
        loss=loss,
        directions="eigen",
        center_loss=floor,
        non_finite=bad,
    )


def spectrum(*, top: float = 50.0, sigma: float = 0.5, outlier: float = 1e-5) -> dict[str, Any]:
    """A Gaussian bulk at zero and one eigenvalue of weight ``outlier`` at ``top``, both of width σ."""
    grid = torch.linspace(-10 * sigma, top + 10 * sigma, 801, dtype=torch.float64)
    nodes = torch.tensor([[0.0, top]], dtype=torch.float64)
    weights = torch.tensor([[1 - outlier, outlier]], dtype=torch.float64)
    kernels = torch.exp(-0.5 * ((grid[:, None] - nodes) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    density = Density(
        grid=grid,
        density=(kernels * weights).sum(dim=1),
        stderr=torch.zeros_like(grid),
        nodes=nodes,
        weights=weights,
        sigma=sigma,
        negative_mass=Estimate(value=0.5, stderr=0.0),
        moments=(Estimate(top * outlier, 0.0), Estimate(top**2 * outlier, 0.0)),
        matvecs=2,
        seed=0,
    )
    return finite(density_entry(density))
