"""Sharpness on average over random perturbations, and the loss behind a low-pass filter.

    S = E_δ L(w + δ) − L(w),   δ ~ N(0, ρ² diag c²), or uniform in ρ·[−c, c] for p = ∞

(Andriushchenko et al. 2023, section 3; Neyshabur et al. 2017 with c = 1.) For ½ wᵀAw and p = 2 it is
ρ² Σ A_ii c_i²/2. The sharpness by a low-pass filter (Bisla et al. 2022) is E_δ L(w + δ) itself, the loss
convolved with N(0, σ²·1); their program takes σ = 0.01 and 100 draws.

Draws come in pairs ±δ, whose mean is free of the gradient's part gᵀδ. All batches share them, so that a draw
costs two passes and two checkpoints measured with one seed have their noise in common. Symbols: M pairs.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.perturbed_loss import Perturbed
from fedscope.landscape.sharpness.sharpness_result import Sharpness
from fedscope.landscape.sharpness.worst_case import check_radius
from fedscope.statistics.standard_errors import (
    drawn_stderr,
    finite_population,
    mean_stderr,
    probed_data_error,
)

PAIRS = 20


def average_sharpness(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    rho: float,
    p: float = 2,
    adaptive: bool = False,
    pairs: int = PAIRS,
    normalize_logits: bool = False,
    bn: BatchNormMode = "eval",
    parameters: Sequence[str] | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sharpness:
    """Estimate average-case sharpness, without bias.

    It does not depend on how samples fall into batches, unlike the worst case.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        rho: standard deviation of δ in units of c for p = 2; half the width of its interval for p = ∞.
        p: 2 or infinity.
        adaptive: c = |w| instead of 1.
        pairs: M.
        normalize_logits: see ``Perturbed``.
        bn: see ``frozen_copy``.
        parameters: patterns of the names that are perturbed; None: all.
        generator: draws the perturbations.
        seed: of such a generator instead; 0 if neither is given.
        progress: called after every pass.

    Raises:
        UserError: ρ is not positive, no pair, both ``generator`` and ``seed``; or see ``Perturbed``.
    """
    check_radius(rho)
    objective = Perturbed(
        model, loss_fn, batches, bn=bn, parameters=parameters, normalize_logits=normalize_logits
    )
    start, draws = objective.values(torch.zeros_like(objective.weights)), generator_of(generator, seed)
    losses = _losses(objective, Geometry(p, adaptive), rho, pairs, draws, progress)
    return summarized(objective, losses - start, draws.initial_seed())


def low_pass_loss(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    sigma: float = 0.01,
    pairs: int = PAIRS,
    bn: BatchNormMode = "eval",
    parameters: Sequence[str] | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> Sharpness:
    """Estimate E L(w + δ) for δ ~ N(0, σ²·1). Arguments and errors as of :func:`average_sharpness`."""
    check_radius(sigma)
    objective, draws = (
        Perturbed(model, loss_fn, batches, bn=bn, parameters=parameters),
        generator_of(generator, seed),
    )
    losses = _losses(objective, Geometry(), sigma, pairs, draws, progress)
    return replace(summarized(objective, losses, draws.initial_seed()), skewed=False)


def _losses(
    objective: Perturbed,
    geometry: Geometry,
    rho: float,
    pairs: int,
    generator: torch.Generator,
    progress: Progress | None,
) -> Tensor:
    """Return each batch's mean loss over every pair ±δ, (M, B)."""
    if pairs < 1:
        raise UserError(f"{pairs} pairs were asked for; take at least 1")
    c, found = geometry.scales(objective.weights), []
    for done in range(1, pairs + 1):
        delta = rho * geometry.noise(c, generator)
        found.append((objective.values(delta) + objective.values(-delta)) / 2)
        if progress:
            progress(2 * done, 2 * pairs)
    return torch.stack(found)


def summarized(objective: Perturbed, parts: Tensor, seed: int) -> Sharpness:
    draws = objective.mean(parts)
    stderr_data, dof_data = probed_data_error(parts, objective.sizes)
    factor = finite_population(sum(objective.sizes), objective.population)
    return Sharpness(
        value=float(draws.mean()),
        stderr_draws=mean_stderr(draws.tolist()),
        dof_draws=len(draws) - 1,
        stderr_data=drawn_stderr(stderr_data, factor),
        dof_data=dof_data,
        draws=tuple(draws.tolist()),
        batches=tuple(parts.mean(0).tolist()),
        cost=objective.cost,
        seed=seed,
        skewed=True,
    )
