"""Results of the sharpness definitions: a value, two kinds of error, and what it cost.

``stderr_draws`` is the error of finitely many random draws on the given samples, 0 where nothing is drawn;
``stderr_data`` is that of the samples as a draw from their population, from the batches' own values; NaN with
fewer than two batches. Costs are counted in passes over all samples.
"""

import math
from dataclasses import dataclass

from fedscope.landscape.printing import Printed
from fedscope.statistics.standard_errors import combined, interval


@dataclass(frozen=True)
class Cost:
    """What a quantity took [passes over all samples]."""

    forwards: int = 0  # evaluations of the loss without a derivative
    gradients: int = 0  # evaluations with a gradient
    products: int = 0  # Hessian–vector products, or directional derivatives of every sample

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.forwards + other.forwards,
            self.gradients + other.gradients,
            self.products + other.products,
        )


@dataclass(frozen=True, repr=False)
class Sharpness(Printed):
    """A quantity by its definition, on these samples."""

    value: float
    stderr_draws: float
    stderr_data: float
    cost: Cost
    seed: int
    dof_draws: float = math.inf  # degrees of freedom of stderr_draws
    dof_data: float = math.nan  # of stderr_data
    draws: tuple[float, ...] = ()  # M: the value by each independent draw; none where nothing is drawn
    batches: tuple[float, ...] = ()  # B: the value of each batch
    skewed: bool = False  # a mean of squares, whose error grows with it

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the value on these samples: the draws' error alone."""
        return self._reach(self.stderr_draws, self.dof_draws, level)

    def population_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the value on the samples' population: both errors."""
        errors = (self.stderr_draws, self.dof_draws), (self.stderr_data, self.dof_data)
        return self._reach(*combined(*errors), level)

    def _reach(self, stderr: float, dof: float, level: float) -> tuple[float, float]:
        """Return Student's interval; of a mean of squares on a logarithmic scale.

        A draw that misses the few directions of high curvature has too low a mean and too low an error
        together, which the logarithm undoes. Within two standard errors of 0 there is no such scale.
        """
        if not (self.skewed and self.value > 2 * stderr):
            return interval(self.value, stderr, dof, level)
        low, high = interval(math.log(self.value), stderr / self.value, dof, level)
        return math.exp(low), math.exp(high)
