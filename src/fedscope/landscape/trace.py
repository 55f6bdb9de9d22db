"""The trace by Hutchinson's estimator: tr H = E[zᵀHz] for probes with E[z zᵀ] = I (Hutchinson 1990).

It stops on its standard error, never on "the running mean moved little", which bounds nothing.
"""

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.errorbars import data_stderr, mean_stderr
from fedscope.landscape.operators import Operator, Product
from fedscope.landscape.probes import Sampler, default_generator, rademacher
from fedscope.landscape.progress import Progress
from fedscope.landscape.results import Trace

DEFAULT_RTOL = 0.05


def trace(
    op: Operator,
    *,
    rtol: float | None = None,
    probes: int | None = None,
    sampler: Sampler = rademacher,
    generator: torch.Generator | None = None,
    max_probes: int = 1000,
    min_probes: int = 10,
    progress: Progress | None = None,
) -> Trace:
    """Estimate tr H with its standard errors.

    ``stderr_probe`` is the sample standard error of the zᵀHz. ``stderr_data`` comes from the spread of the
    batches' own trace estimates, which share the probes; it contains a little of the probes' noise as well.
    A sampler that ends (``orthogonal``) gives the exact value, with ``stderr_probe`` 0. A non-finite product
    ends the run and the value is not finite.

    Args:
        op: symmetric operator.
        rtol: stop once ``stderr_probe`` ≤ rtol·|value|; 0.05 if neither this nor ``probes`` is given.
        probes: take exactly so many instead.
        sampler: distribution of the probes.
        generator: draws the probes; a fixed default if not given.
        max_probes: an end to the search for ``rtol``: a trace near zero has no relative precision.
        min_probes: with ``rtol``, the least number, below which a standard error means little.
        progress: called after every product; the total is known with ``probes`` only.

    Raises:
        UserError: both ``rtol`` and ``probes`` given, or a number of probes below 1.
    """
    if rtol is not None and probes is not None:
        raise UserError("give rtol or probes, not both: one says when to stop, the other how many to take")
    most = max_probes if probes is None else probes
    if most < 1:
        raise UserError(f"{most} probes were asked for; at least 1 is needed")
    goal = DEFAULT_RTOL if rtol is None else rtol
    generator = generator or default_generator()
    seed = generator.initial_seed()
    tally = TraceTally(op)
    vectors = sampler(op.shape[0], generator, op.dtype, op.device)
    for z in islice(vectors, most):
        tally.add(z, op.product(z))
        if progress:
            progress(tally.probes, probes)
        if not tally.finite or (probes is None and tally.probes >= min_probes and tally.is_within(goal)):
            break
    return tally.result(exact=ended(vectors), seed=seed)


def ended(vectors: Iterator[Tensor]) -> bool:
    """Say whether a sampler has given its whole, exact set."""
    return next(vectors, None) is None


class TraceTally:
    """The running zᵀHz of a series of products, and their per-batch forms."""

    def __init__(self, op: Operator) -> None:
        self._weights = op.weights
        self._values: list[float] = []
        self._forms: list[Tensor] = []

    @property
    def probes(self) -> int:
        """Products added."""
        return len(self._values)

    @property
    def finite(self) -> bool:
        """Whether the newest zᵀHz is finite."""
        return bool(torch.tensor(self._values[-1]).isfinite())

    def add(self, z: Tensor, product: Product) -> None:
        """Add one probe and its product."""
        self._values.append(float(z.double() @ product.vector.double()))
        if product.forms is not None:
            self._forms.append(product.forms)

    def is_within(self, rtol: float) -> bool:
        """Say whether the standard error is at most rtol times the size of the mean."""
        return mean_stderr(self._values) <= rtol * abs(self._mean())

    def result(self, *, exact: bool, seed: int) -> Trace:
        """Return the estimate; ``exact`` says that the probes were a complete set."""
        forms = torch.stack(self._forms).mean(0) if self._forms else None
        return Trace(
            value=self._mean(),
            stderr_probe=0.0 if exact else mean_stderr(self._values),
            stderr_data=data_stderr(forms, self._weights),
            probes=self.probes,
            matvecs=self.probes,
            seed=seed,
        )

    def _mean(self) -> float:
        return sum(self._values) / len(self._values)
