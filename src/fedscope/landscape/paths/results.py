"""Results: frozen records with values, errors and cost. Symbols: K networks, N samples."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.landscape.printing import Printed
from fedscope.landscape.spectral.results import Estimate


@dataclass(frozen=True, repr=False)
class PairBarriers(Printed):
    """How far the loss rises between K networks, for every pair.

    B_ij = max over t of F((1−t)·w_i + t·w_j) − (1−t)·F(w_i) − t·F(w_j), at least 0. Matrices are symmetric.
    """

    losses: Tensor  # (K,) float64: F(w_k)
    losses_stderr: Tensor  # (K,) float64, over draws of samples
    heights: Tensor  # (K, K) float64: of these samples; biased upward for the population
    at: Tensor  # (K, K) float64: t of the height, from the row's network to the column's
    values: (
        Tensor  # (K, K) float64: of the population, t chosen on one half of the samples, read on the other
    )
    stderr: Tensor  # (K, K) float64: of ``values``, paired over samples
    dof: Tensor  # (K, K) float64: degrees of freedom of ``stderr``
    mean: Estimate  # over distinct pairs, of the population
    matched: bool  # whether the column's network was permuted to fit the row's
    similarities: Tensor  # (K, K) float64: cosines of the parameters, after matching where there was one
    bn: str
    samples: int
    points: int  # of the grid inside a line
    passes: int  # forward passes over all samples

    def estimate(self, i: int, j: int) -> Estimate:
        """Return the barrier between two networks, of the population."""
        return Estimate(float(self.values[i, j]), float(self.stderr[i, j]), float(self.dof[i, j]), low=0.0)

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
    matched: bool  # whether all networks were permuted to fit the first
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
