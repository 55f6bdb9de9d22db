"""PAC-Bayes σ: the largest noise that a network bears (Neyshabur et al. 2017; Jiang et al. 2020).

The largest σ with E D(σz) ≤ t, D the rise of the loss or the drop of the accuracy and z ~ N(0, 1); or,
magnitude-aware, with noise √(σ²w² + ε²)·z (Jiang et al. 2020, ε = 0.001). Their complexity measure is 1/σ².
For ½ wᵀAw and noise σz it is √(2t/tr A).

With common draws the mean D̄(σ) is one function, whose first crossing of t is found by doubling and bisection.
The intervals hold every σ at which the interval of E D(σz) holds t: they invert a test, and do not rest on a
derivative. Symbols: M pairs of draws ±z, B batches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Data
from fedscope.landscape.loss.flat_loss import LossFunction
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.printing import Printed
from fedscope.landscape.sharpness.average_case import summarized
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.perturbed_loss import Perturbed, error_rate
from fedscope.landscape.sharpness.sharpness_result import Cost, Sharpness

EPSILON = 1e-3
_SMALLEST, _START, _LARGEST = 2.0**-40, 2.0**-8, 2.0**10  # σ that are looked at


@dataclass(frozen=True, repr=False)
class NoiseLevel(Printed):
    """σ, with 95 % intervals."""

    value: float  # infinity where no noise that was tried deviates so much
    ends: tuple[float, float]  # interval on these samples: the draws' error alone
    population_ends: tuple[float, float]  # interval on the samples' population: both errors; NaN of one batch
    deviation: float  # D̄ at ``value``: the target, or less where the accuracy jumps over it
    stderr_draws: float  # the deviation's over its slope in σ
    stderr_data: float
    cost: Cost
    seed: int
    dof_draws: float = math.nan
    dof_data: float = math.nan
    draws: tuple[float, ...] = ()  # M: σ to first order by each pair of draws
    batches: tuple[float, ...] = ()  # B: σ to first order by each batch

    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval on these samples."""
        return self.ends

    def population_interval(self) -> tuple[float, float]:
        """Return the 95 % interval on the samples' population."""
        return self.population_ends


def pac_bayes_sigma(
    model: nn.Module,
    loss_fn: LossFunction,
    batches: Data,
    *,
    target: float = 0.1,
    of: Literal["loss", "accuracy"] = "accuracy",
    adaptive: bool = False,
    epsilon: float = EPSILON,
    pairs: int = 5,
    rtol: float = 1e-2,
    bn: BatchNormMode = "eval",
    parameters: Sequence[str] | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
) -> NoiseLevel:
    """Find σ to the relative precision ``rtol``.

    Args:
        model: any module; copied, never modified.
        loss_fn: (output, targets) ↦ scalar batch mean.
        batches: the samples.
        target: t, the expected deviation that is borne; 0.1 of the accuracy in Jiang et al.
        of: the rise of the loss, or the drop of the accuracy.
        adaptive: noise in units of the weights.
        epsilon: ε of such noise.
        pairs: M ≥ 2.
        rtol: of the bisections.
        bn: see ``frozen_copy``.
        parameters: patterns of the names that are perturbed; None: all.
        generator: draws the noise.
        seed: of such a generator instead; 0 if neither is given.
        progress: called after every pass.

    Raises:
        UserError: a number out of range, both ``generator`` and ``seed``, outputs without an accuracy; or
            see ``Perturbed``.
    """
    if not (target > 0 and 0 < rtol < 1 and epsilon >= 0 and pairs >= 2):
        raise UserError(
            f"target, rtol, epsilon and pairs are {target}, {rtol}, {epsilon} and {pairs}; take a positive "
            "target, rtol between 0 and 1, epsilon from 0 and at least 2 pairs"
        )
    generator = generator_of(generator, seed)
    objective = Perturbed(model, loss_fn, batches, bn=bn, parameters=parameters)
    found = Deviations(objective, of, epsilon if adaptive else None, pairs, generator, progress)
    return noise_level(found, target, rtol, generator.initial_seed())


def noise_level(found: "Deviations", target: float, rtol: float, seed: int) -> NoiseLevel:
    """Return where a deviation first exceeds the target, with the crossings of its intervals."""
    crossing = _Crossings(found, target, rtol)
    value = crossing.of(lambda at: at.value)[0]
    ends = crossing.of(lambda at: at.interval()[1])[0], crossing.of(lambda at: at.interval()[0])[1]
    whole = math.nan, math.nan
    if not all(math.isnan(at.stderr_data) for at in found.known.values()):  # one batch tells none
        whole = (
            crossing.of(lambda at: at.population_interval()[1])[0],
            crossing.of(lambda at: at.population_interval()[0])[1],
        )
    return _result(found, value, ends, whole, target, seed)


class Deviations:
    """σ ↦ the deviation with its errors; each σ is evaluated once, with the same draws."""

    def __init__(
        self,
        objective: Perturbed,
        of: Literal["loss", "accuracy"],
        epsilon: float | None,
        pairs: int,
        generator: torch.Generator,
        progress: Progress | None,
    ) -> None:
        self.objective, self._epsilon, self._progress = objective, epsilon, progress
        self._read = None if of == "loss" else error_rate
        self._seeds = torch.randint(1 << 62, (pairs,), generator=generator, device=generator.device).tolist()
        self._start = objective.values(torch.zeros_like(objective.weights), self._read)
        self.known: dict[float, Sharpness] = {}

    def __call__(self, sigma: float) -> Sharpness:
        if sigma not in self.known:
            parts = torch.stack([self._pair(seed, sigma) for seed in self._seeds])
            self.known[sigma] = summarized(self.objective, parts, 0)
            if self._progress:
                self._progress(self.objective.cost.forwards, None)
        return self.known[sigma]

    def _pair(self, seed: int, sigma: float) -> Tensor:
        weights, draws = self.objective.weights, torch.Generator().manual_seed(seed)
        z = Geometry().noise(torch.ones_like(weights), draws)
        scale = sigma if self._epsilon is None else (sigma**2 * weights**2 + self._epsilon**2).sqrt()
        rises = [self.objective.values(sign * scale * z, self._read) for sign in (1, -1)]
        return (rises[0] + rises[1]) / 2 - self._start


class _Crossings:
    """Where a function of the deviation first exceeds the target."""

    def __init__(self, found: Deviations, target: float, rtol: float) -> None:
        self._found, self._target, self._rtol = found, target, rtol

    def of(self, end: Callable[[Sharpness], float]) -> tuple[float, float]:
        """Return neighbouring σ between which ``end`` crosses; (0, 0) or (∞, ∞) where it does so nowhere."""

        def borne(sigma: float) -> bool:
            return end(self._found(sigma)) <= self._target  # what is not finite deviates

        low, high = self._bracket(borne)
        while low > 0 and high < math.inf and high > low * (1 + self._rtol):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if borne(middle) else (low, middle)
        return low, high

    def _bracket(self, borne: Callable[[float], bool]) -> tuple[float, float]:
        known = sorted(self._found.known) or [_START]
        first = next((i for i, sigma in enumerate(known) if not borne(sigma)), len(known))
        if 0 < first < len(known):
            return known[first - 1], known[first]
        if first == 0:
            sigma = known[0]
            while sigma > _SMALLEST:
                sigma /= 2
                if borne(sigma):
                    return sigma, 2 * sigma
            return 0.0, 0.0
        sigma = known[-1]
        while sigma < _LARGEST:
            sigma *= 2
            if not borne(sigma):
                return sigma / 2, sigma
        return math.inf, math.inf


def _result(
    found: Deviations,
    value: float,
    ends: tuple[float, float],
    population_ends: tuple[float, float],
    target: float,
    seed: int,
) -> NoiseLevel:
    if not 0 < value < math.inf:
        missing = math.nan
        return NoiseLevel(value, ends, population_ends, missing, missing, missing, found.objective.cost, seed)
    at = found(value)
    slope = _slope(found, value)
    return NoiseLevel(
        value=value,
        ends=ends,
        population_ends=population_ends,
        deviation=at.value,
        stderr_draws=at.stderr_draws / slope,
        dof_draws=at.dof_draws,
        stderr_data=at.stderr_data / slope,
        dof_data=at.dof_data,
        draws=tuple(value - (draw - target) / slope for draw in at.draws),
        batches=tuple(value - (part - target) / slope for part in at.batches),
        cost=found.objective.cost,
        seed=seed,
    )


def _slope(found: Deviations, value: float) -> float:
    """Return dD̄/dσ by the σ that were evaluated within a factor 1.5, on a straight line; NaN if it falls."""
    near = [(sigma, at.value) for sigma, at in found.known.items() if 1 / 1.5 <= sigma / value <= 1.5]
    sigmas, deviations = torch.tensor(near, dtype=torch.float64).T
    off = sigmas - sigmas.mean()
    slope = float((off * deviations).sum() / (off * off).sum()) if len(near) > 1 else math.nan
    return slope if slope > 0 else math.nan
