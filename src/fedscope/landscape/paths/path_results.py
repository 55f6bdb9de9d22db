"""Results: frozen records with values, errors and cost. Symbols: K networks, N samples."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.spectral_results import Estimate
from fedscope.statistics.standard_errors import interval


@dataclass(frozen=True, repr=False)
class PairBarriers(Printed):
    """How far the loss rises between K networks, for every pair.

    B_ij = max over t of F((1−t)·w_i + t·w_j) − (1−t)·F(w_i) − t·F(w_j), at least 0. Matrices are symmetric.
    """

    losses: Tensor  # (K,) float64: F(w_k)
    losses_stderr: Tensor  # (K,) float64, over draws of samples
    heights: Tensor  # (K, K) float64: of these samples; biased upward for the population
    at: Tensor  # (K, K) float64: t of the height, from the row's network to the column's
    values: Tensor  # (K, K) float64: of the population, (2·height + the height read on the other half)/3
    stderr: Tensor  # (K, K) float64: of ``values``, paired over samples
    dof: Tensor  # (K, K) float64: degrees of freedom of ``stderr``
    low: Tensor  # (K, K) float64: the lower end of the 95 % interval, see :mod:`.peak`
    high: Tensor  # (K, K) float64: the upper end
    mean: Estimate  # over distinct pairs, of the population
    similarities: Tensor  # (K, K) float64: cosines of the parameters
    bn: str
    samples: int
    points: int  # of the grid inside a line
    passes: int  # forward passes over all samples

    def estimate(self, i: int, j: int) -> Estimate:
        """Return the barrier between two networks, of the population."""
        value, stderr, dof, low, high = (
            float(matrix[i, j]) for matrix in (self.values, self.stderr, self.dof, self.low, self.high)
        )
        return Estimate(value, stderr, dof, low=0.0, ends=(low, high))

    @property
    def mean_height(self) -> float:
        """The mean over distinct pairs of the samples' own heights."""
        off = ~torch.eye(len(self.heights), dtype=torch.bool)
        return float(self.heights[off].mean())


@dataclass(frozen=True, repr=False)
class AveragingBarrier(Printed):
    """How far the loss of the networks' average is above the average of theirs: F(w̄) − Σ_k p_k F(w_k)."""

    value: float
    stderr: float  # over draws of samples, paired: that of the mean of ℓ_i(w̄) − Σ_k p_k ℓ_i(w_k)
    dof: float
    loss: float  # F(w̄)
    loss_stderr: float
    mean_loss: float  # Σ_k p_k F(w_k)
    mean_loss_stderr: float
    weights: Tensor  # (K,) float64: p
    similarities: Tensor  # (K,) float64: cosines with the first network's parameters
    bn: str
    samples: int
    passes: int  # forward passes over all samples

    def estimate(self) -> Estimate:
        """Return the excess, of the population; it may be negative."""
        return Estimate(self.value, self.stderr, self.dof)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's confidence interval."""
        return self.estimate().interval(level)


@dataclass(frozen=True, repr=False)
class CriticalStep(Printed):
    """How far along an update the loss stays below what it is at the start (:mod:`.critical_step`).

    In units of the update: a step of 1 is the update itself.
    """

    # η_c; 0 where the loss rises at once, infinite where it never does within the search, NaN of an update
    # that the weights' rounding hides
    step: float
    bracket: tuple[float, float]  # the loss has not risen at the first, and has at the second
    stderr: float  # of the step, over draws of samples; NaN where it could not be formed
    dof: float
    length: float  # ‖d‖
    steps: int  # that were tried, each a forward pass over all samples

    @property
    def sharpness(self) -> float:
        """λ_c = 2/η_c; below 2 where the whole update lowers the loss."""
        return 2 / self.step if self.step else math.inf

    @property
    def distance(self) -> float:
        """η_c·‖d‖: how far that is in weight space."""
        return self.step * self.length

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return Student's confidence interval of the step, and the bracket's half-width at both ends.

        (NaN, NaN) where the loss rises at once or never.
        """
        low, high = interval(self.step, self.stderr, self.dof, level)
        room = (self.bracket[1] - self.bracket[0]) / 2
        return low - room, high + room

    def sharpness_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return that of λ_c; without an upper end where the step's reaches 0."""
        low, high = self.interval(level)
        return 2 / high, 2 / low if not low <= 0 else math.inf


@dataclass(frozen=True, repr=False)
class UpdateSharpness(Printed):
    """Critical steps of a round, from the server's network w: along the mean update and every client's."""

    server: CriticalStep  # along Δ̄ = Σ_k p_k Δ_k, the negative of the pseudo-gradient
    clients: tuple[CriticalStep, ...]  # K: along Δ_k = w_k − w
    loss: float  # F(w)
    weights: Tensor  # (K,) float64: p
    bn: str
    samples: int
    passes: int  # forward passes over all samples
