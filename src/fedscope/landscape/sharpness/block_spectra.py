"""The spectra of layers' diagonal blocks, and how far apart they are (Zhang et al. 2024).

They measure the heterogeneity of blocks by the Jensen–Shannon distance between their spectral densities p, q,

    JS = ½ KL(p ‖ m) + ½ KL(q ‖ m),   m = ½ (p + q),

and average it over all pairs of blocks. Densities are of stochastic Lanczos quadrature, smoothed by Gaussians
of one width for both: 1 % of the range of all nodes, unless another is given. JS is in nats, between 0 and
ln 2; its square root is a metric (Endres and Schindelin 2003).

Densities of few probes differ even where the truth does not, so that JS is biased upward: the jackknife over
the probes of either block removes most of that, and gives the standard error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.operators.probes import seed_of
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.layer_blocks import Restricted
from fedscope.landscape.spectral.slq_density import MARGIN, SIGMA_FRACTION, smoothed, spectral_density
from fedscope.landscape.spectral.spectral_results import Density, Eigenpairs, Estimate, Trace
from fedscope.statistics.standard_errors import jackknife_variance
from fedscope.streams import torch_stream

_POINTS = 201  # of the grid of an integral, at the least
_RESOLUTION = 8  # points of one width of the smoothing


@dataclass(frozen=True, repr=False)
class BlockSpectrum(Printed):
    """λ_max, trace and density of a layer's block."""

    largest: Eigenpairs
    trace: Trace
    density: Density

    @property
    def matvecs(self) -> int:
        return self.largest.matvecs + self.trace.matvecs + self.density.matvecs


def block_spectra(
    restricted: Restricted,
    layers: Sequence[str],
    *,
    tol: float = 1e-3,
    rtol: float = 0.05,
    probes: int = 8,
    steps: int = 30,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> dict[str, BlockSpectrum]:
    """Return each layer's λ_max, trace and density, by pattern.

    Args:
        restricted: makes the operator of a pattern, see ``layer_eigenpairs``.
        layers: a pattern each (:mod:`fnmatch`).
        tol: residual of λ_max, relative to itself.
        rtol: standard error of the trace, relative to its value.
        probes: of the density.
        steps: Lanczos steps of each.
        generator: draws the seed; a layer's draws do not depend on which others are asked for.
        seed: given instead; 0 if neither is given.
        progress: called after every product with the number of all so far.

    Raises:
        UserError: a pattern without a match, a number out of range, or both ``generator`` and ``seed``.
    """
    found: dict[str, BlockSpectrum] = {}
    seed, spent = seed_of(generator, seed), 0
    for layer in layers:
        op, draws = restricted([layer]), torch_stream(seed, f"block {layer}")
        largest = top_eigenpairs(
            op, k=1, tol=tol, generator=draws, by_sample=False, progress=continued(progress, spent)
        )
        spent += largest.matvecs
        total = trace(
            op,
            known=largest.subspace,
            rtol=rtol,
            keep=probes,
            generator=draws,
            progress=continued(progress, spent),
        )
        spent += total.matvecs
        density = spectral_density(
            op,
            probes=probes,
            steps=steps,
            probed=total.probed,
            generator=draws,
            progress=continued(progress, spent),
        )
        spent += density.matvecs
        found[layer] = BlockSpectrum(replace(largest, subspace=None), replace(total, probed=None), density)
    return found


def mean_spectral_distance(densities: Mapping[str, Density], *, sigma: float | None = None) -> Estimate:
    """Return the mean Jensen–Shannon divergence [nats] over all pairs of at least two blocks.

    All are smoothed by one width. The jackknife leaves out one probe of one block at a time, in all its pairs
    together; what it says of the probes' bias is taken off. The error is NaN where a block has a single
    probe, 0 where all are exact. Where densities hardly differ, the estimate may lie below 0.

    Args:
        densities: of independent probes.
        sigma: standard deviation of the smoothing, in units of the eigenvalues.

    Raises:
        UserError: fewer than two blocks, or sigma is not positive.
    """
    if sigma is not None and not sigma > 0:
        raise UserError(f"sigma is {sigma}; it must be positive")
    if len(densities) < 2:
        raise UserError(f"{len(densities)} block has no distance to another; give at least two layers")
    blocks = list(densities.values())
    grid, width = _grid(blocks, sigma)
    rows = [smoothed(grid, density.nodes, density.weights, width) for density in blocks]
    means, step = [row.mean(0) for row in rows], float(grid[1] - grid[0])
    pairs = len(blocks) * (len(blocks) - 1) / 2
    value = sum(_divergence(a, b, step) for a, b in combinations(means, 2)) / pairs
    bias = variance = 0.0
    for i, density in enumerate(blocks):
        if density.exact:
            continue
        others = means[:i] + means[i + 1 :]
        own = sum(_divergence(means[i], other, step) for other in others) / pairs
        left_out = [
            sum(_divergence(part, other, step) for other in others) / pairs for part in _without_each(rows[i])
        ]
        more, spread = _jackknife(own, left_out)
        bias, variance = bias + more, variance + spread
    dof = sum(len(d.nodes) - 1 for d in blocks if not d.exact) or math.inf
    return Estimate(value - bias, math.sqrt(variance), dof, low=0.0, high=math.log(2))


def _grid(densities: Sequence[Density], sigma: float | None) -> tuple[Tensor, float]:
    nodes = torch.cat([d.nodes[d.weights != 0] for d in densities])
    low, high = float(nodes.min()), float(nodes.max())
    width = sigma if sigma is not None else SIGMA_FRACTION * ((high - low) or abs(high) or 1.0)
    low, high = low - MARGIN * width, high + MARGIN * width
    points = (
        max(_POINTS, math.ceil(_RESOLUTION * (high - low) / width)) if math.isfinite(high - low) else _POINTS
    )
    return low + (high - low) * torch.linspace(0, 1, points, dtype=torch.float64), width


def _divergence(p: Tensor, q: Tensor, step: float) -> float:
    middle = (p + q) / 2
    halves = (torch.xlogy(one, one / middle.clamp(min=1e-300)).sum() for one in (p, q))
    return float(sum(halves)) * step / 2


def _without_each(rows: Tensor) -> Tensor:
    return (rows.sum(0) - rows) / (len(rows) - 1)


def _jackknife(whole: float, left_out: Sequence[float]) -> tuple[float, float]:
    values = torch.tensor(left_out, dtype=torch.float64)
    return (len(left_out) - 1) * (float(values.mean()) - whole), float(jackknife_variance(values))
