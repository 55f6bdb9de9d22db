"""The spectral density by stochastic Lanczos quadrature (Ubaru, Chen and Saad 2017; Ghorbani et al. 2019).

For a probe z, the measure Σ_i (uᵢᵀz)²/‖z‖² δ(λ − λᵢ) is approximated by the Gauss quadrature of its Lanczos
tridiagonal T: nodes the eigenvalues θ of T, weights the squared FIRST components of its eigenvectors. The
mean over probes estimates (1/n) Σ_i δ(λ − λᵢ), which is then smoothed by a Gaussian of standard deviation σ.

Symbols: n size of the operator, M probes, m points of the grid.
"""

import math
from itertools import chain, islice
from pathlib import Path

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.probes import Sampler, ended, generator_of, rademacher
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.spectral.krylov.lanczos import Lanczos
from fedscope.landscape.spectral.spectral_results import Density, Probed, probe_mean

PROBES, STEPS = 4, 40
SIGMA_FRACTION = 0.01
MARGIN = 6.0  # the grid reaches this many σ beyond the outermost nodes: 2e-9 of the mass lies outside


def spectral_density(
    op: Operator,
    *,
    probes: int = PROBES,
    steps: int = STEPS,
    sampler: Sampler = rademacher,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    sigma: float | None = None,
    points: int = 1001,
    probed: Probed | None = None,
    basis_folder: Path | None = None,
    progress: Progress | None = None,
) -> Density:
    """Estimate the density of eigenvalues, normalised to one.

    The band and all errors are those of the probes; ``Density.mass_bounds`` tells what finite steps leave
    open. n times the mean of Σ weights·nodes is the Hutchinson estimate of the trace from the same probes.
    After a non-finite product nodes, grid and density are NaN.

    Args:
        op: symmetric operator.
        probes: M; a complete set (``orthogonal``) with ``steps`` = n gives the exact density.
        steps: Lanczos steps per probe, at most n are taken.
        sampler: distribution of the starting vectors.
        generator: draws them.
        seed: of such a generator instead; 0 if neither is given.
        sigma: standard deviation of the smoothing, in units of the eigenvalues; by default 1% of the range of
            the nodes (of their largest magnitude if they coincide, 0.01 if all are zero).
        points: m, of a uniform grid that covers all nodes with a margin of 6σ.
        probed: probes of the same distribution with their products, such as a trace's first ones, taken
            before any is drawn: each saves the product of its first step.
        basis_folder: of a file for the Krylov bases, see ``top_eigenpairs``.
        progress: called after every product; the total counts ``steps`` for each probe.

    Raises:
        UserError: a number below 1, a grid coarser than σ, which would not integrate to one, or both
            ``generator`` and ``seed`` given.
    """
    if min(probes, steps, points) < 1 or (sigma is not None and sigma <= 0):
        raise UserError(
            f"probes, steps, points and sigma must be positive: {probes}, {steps}, {points}, {sigma}"
        )
    generator = generator_of(generator, seed)
    seed = generator.initial_seed()
    steps = min(steps, op.shape[0])
    nodes, weights, matvecs = [], [], 0
    vectors = sampler(op.shape[0], generator, op.dtype, op.device)
    known = list(zip(probed.vectors, probed.images, strict=True)) if probed else []
    fresh = (  # the same seed draws the known ones once more
        z
        for place, z in enumerate(vectors)
        if place >= len(known) or not any(torch.equal(z, own) for own, _ in known)
    )
    starts = chain(known, ((z, None) for z in fresh))
    for probe, (z, image) in enumerate(islice(starts, probes)):
        krylov = Lanczos(op, z, generator=generator, image=image, folder=basis_folder, capacity=steps + 1)
        while krylov.finite and krylov.steps < steps and (krylov.steps == 0 or krylov.betas[-1] > 0):
            krylov.step()
            if progress:
                progress(probe * steps + krylov.steps, probes * steps)
        matvecs += krylov.matvecs
        theta, mass = _quadrature(krylov)
        nodes.append(torch.nn.functional.pad(theta, (0, steps - len(theta))))
        weights.append(torch.nn.functional.pad(mass, (0, steps - len(mass))))
    theta, mass = torch.stack(nodes), torch.stack(weights)
    width = _default_sigma(theta[mass != 0]) if sigma is None else sigma
    grid = _grid(theta[mass != 0], width, points)
    smooth, exact = smoothed(grid, theta, mass, width), ended(vectors)
    return Density(
        grid=grid,
        density=smooth.mean(0),
        stderr=_stderr(smooth, exact),
        nodes=theta,
        weights=mass,
        sigma=width,
        moments=(probe_mean((mass * theta).sum(1), exact), probe_mean((mass * theta**2).sum(1), exact)),
        matvecs=matvecs,
        seed=seed,
        exact=exact,
    )


def _quadrature(krylov: Lanczos) -> tuple[Tensor, Tensor]:
    if not krylov.finite:
        missing = torch.full((krylov.steps,), math.nan, dtype=torch.float64)
        return missing, missing.clone()
    theta, s = torch.linalg.eigh(krylov.projected)
    return theta, s[0] ** 2


def _default_sigma(nodes: Tensor) -> float:
    spread = float(nodes.max() - nodes.min())
    scale = spread if spread != 0 else float(nodes.abs().max())
    return SIGMA_FRACTION * (scale if scale != 0 else 1.0)


def _grid(nodes: Tensor, sigma: float, points: int) -> Tensor:
    low, high = float(nodes.min()) - MARGIN * sigma, float(nodes.max()) + MARGIN * sigma
    if high - low > (points - 1) * sigma:
        needed = math.ceil((high - low) / sigma) + 1
        raise UserError(f"{points} points are too coarse for sigma = {sigma:.3g}: take at least {needed}")
    share = torch.linspace(0, 1, points, dtype=torch.float64)
    return low + (high - low) * share


def smoothed(grid: Tensor, nodes: Tensor, weights: Tensor, sigma: float) -> Tensor:
    """Return each probe's density (M, m) on a grid (m,), from its nodes and weights (M, steps)."""
    densities = []
    for theta, mass in zip(nodes, weights, strict=True):
        z = (grid[:, None] - theta) / sigma
        densities.append((-0.5 * z**2).exp() @ mass)
    return torch.stack(densities) / (sigma * math.sqrt(2 * math.pi))


def _stderr(densities: Tensor, exact: bool) -> Tensor:
    if exact:
        return torch.zeros_like(densities[0])
    if len(densities) == 1:
        return torch.full_like(densities[0], math.nan)
    return densities.std(0) / math.sqrt(len(densities))
