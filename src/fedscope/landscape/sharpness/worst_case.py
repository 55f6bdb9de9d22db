"""m-sharpness in the worst case: the mean over batches of m samples of the largest rise of their loss.

    S = (1/N) Σ_b n_b · max_{‖δ ⊘ c‖_p ≤ ρ} [L_b(w + δ) − L_b(w)]

(Foret et al. 2021; Kwon et al. 2021 with c = |w|; Andriushchenko et al. 2023, section 3.) A smaller m has
the larger S: every batch has its own δ. At a minimum of ½ wᵀAw with c = 1, p = 2 it is ρ²λ_max/2.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.perturbed_loss import Perturbed
from fedscope.landscape.sharpness.searches import AutoPGD, Search, Vertices
from fedscope.landscape.sharpness.sharpness_result import Sharpness
from fedscope.statistics.standard_errors import data_stderr


def worst_case_sharpness(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    rho: float,
    p: float = 2,
    adaptive: bool = False,
    m: int | None = None,
    search: Search | None = None,
    normalize_logits: bool = False,
    bn: BatchNormMode = "eval",
    parameters: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sharpness:
    """Estimate worst-case sharpness from below by a search in each batch.

    Nothing is averaged over draws, so that ``stderr_draws`` is 0; ``stderr_data`` is over the batches, for
    the mean over all batches of as many samples.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        rho: radius ρ.
        p: 2 or infinity.
        adaptive: c = |w| instead of 1.
        m: samples of a batch, dealt at random by the seed; None: the batches as they are.
        search: ``OneStep()``, ``AutoPGD(...)``, or for p = ∞ ``Vertices(...)``; None: 20 steps of
            ``AutoPGD``, or of ``Vertices`` for p = ∞.
        normalize_logits: see ``Perturbed``.
        bn: see ``frozen_copy``.
        parameters: patterns of the names that are perturbed; None: all.
        seed: of the dealing, and of the vertices that a search of p = ∞ begins at.
        progress: called after every gradient of a batch.

    Raises:
        UserError: ρ is not positive, vertices of p = 2, or see ``Geometry`` and ``Perturbed``.
    """
    check_radius(rho)
    geometry, climb = Geometry(p, adaptive), search or (AutoPGD() if p == 2 else Vertices(seed=seed))
    if p == 2 and isinstance(climb, Vertices):
        raise UserError("the ball of p = 2 has no vertices; search it by AutoPGD()")
    objective = Perturbed(
        model, loss_fn, batches, m=m, seed=seed, bn=bn, parameters=parameters,
        normalize_logits=normalize_logits,
    )  # fmt: skip
    c, rises = geometry.scales(objective.weights), []
    total = len(objective.sizes) * (climb.steps + 1)
    for b in range(len(objective.sizes)):
        seen = _Seen(objective, b, progress, total)
        before, largest = climb(seen, geometry, c, rho)
        rises.append(largest - before)
        if isinstance(climb, Vertices) and seen.best is not None:
            climb = climb.after(seen.best)
    share = [size * rise for size, rise in zip(objective.sizes, rises, strict=True)]
    return Sharpness(
        value=sum(share) / sum(objective.sizes),
        stderr_draws=0.0,
        stderr_data=data_stderr(torch.tensor(rises, dtype=torch.float64), objective.sizes),
        dof_data=len(rises) - 1,
        batches=tuple(rises),
        cost=objective.cost,
        seed=seed,
    )


def check_radius(rho: float) -> None:
    if not 0 < rho < float("inf"):
        raise UserError(f"rho is {rho}; a radius is a positive number, such as 0.05")


class _Seen:
    """A batch's loss and gradient, and where the loss was largest."""

    def __init__(self, objective: Perturbed, b: int, progress: Progress | None, total: int) -> None:
        self._objective, self._b, self._progress, self._total = objective, b, progress, total
        self._most = -math.inf
        self.best: Tensor | None = None

    def __call__(self, delta: Tensor) -> tuple[float, Tensor]:
        found = self._objective.gradient(self._b, delta)
        if self._progress:
            self._progress(self._objective.gradients, self._total)
        if found[0] > self._most:
            self._most, self.best = found[0], delta
        return found
