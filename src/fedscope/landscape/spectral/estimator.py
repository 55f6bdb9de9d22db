"""What an estimator is: a function of an operator that draws, and says how sure it is and what it cost.

:func:`fedscope.landscape.trace` is one. The laws of one's own: ``fedscope.testing.EstimatorConformance``.
"""

from typing import Protocol

import torch

from fedscope.landscape.operators.base import Operator


class Estimated(Protocol):
    """A number with the error that its own draws leave in it."""

    @property
    def value(self) -> float:
        """The estimate, not finite where a product was not."""

    @property
    def stderr_probe(self) -> float:
        """Its standard error over the draws, for the operator as it is; 0 where it is exact."""

    @property
    def matvecs(self) -> int:
        """Products that it took."""

    @property
    def seed(self) -> int:
        """Of the generator that it drew from."""

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval by that error."""


class Estimator(Protocol):
    """A function of an operator, with whatever further options."""

    def __call__(
        self, op: Operator, *, generator: torch.Generator | None = None, seed: int | None = None
    ) -> Estimated:
        """Estimate a number; it draws by the rule of :func:`..operators.probes.generator_of`."""
