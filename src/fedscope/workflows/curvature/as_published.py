"""A checkpoint measured in reading ``code``: every quantity by the published scripts' estimator and data.

Each quantity of each model begins its loader and its vectors at the same seed, 1 in the scripts, so that it
does not depend on what else was measured before.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.progress import Progress
from fedscope.landscape.published.estimators import (
    PublishedTrace,
    published_comparison,
    published_eigenpairs,
    published_trace,
)
from fedscope.landscape.published.resampling import Loader, Resampled
from fedscope.landscape.spectral.results import Eigenpairs, Trace
from fedscope.workflows.curvature.cross_client import Crossed
from fedscope.workflows.requests import Crossing, Resampling
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import Client, Participants, loader


@dataclass(frozen=True)
class AsPublished:
    """The estimators of reading ``code`` on one problem.

    ``curvature`` makes the operator of a model on batches, ``tol`` is the relative change at which every
    iteration stops.
    """

    problem: Problem
    resampling: Resampling
    curvature: Callable[[nn.Module, Batches], LossOperator]
    tol: float

    def eigenpairs(self, k: int, progress: Progress | None = None) -> Eigenpairs:
        """Return the k eigenvalues of largest magnitude, in the order found; residuals and errors are NaN."""
        found = published_eigenpairs(
            self._operator(None), k=k, generator=self._vectors(), tol=self.tol, progress=progress
        )
        return Eigenpairs.bare(found.values, found.vectors, sum(found.iterations), self.resampling.seed)

    def trace(self, progress: Progress | None = None) -> Trace:
        """Return the trace; its errors are NaN."""
        found = published_trace(
            self._operator(None), generator=self._vectors(), tol=self.tol, progress=progress
        )
        return Trace(
            value=found.value,
            stderr_probe=math.nan,
            stderr_data=math.nan,
            probes=found.iterations,
            matvecs=found.iterations,
            seed=self.resampling.seed,
        )

    def clients(self, people: Participants, options: Crossing, progress: Progress | None = None) -> Crossed:
        """Compare clients by their tensors' traces."""
        rounds, traces, spent = dict[int, int | None](), list[PublishedTrace](), 0
        for client in people:
            rounds[client.number] = client.info.round if client.info else None
            traces.append(
                published_trace(
                    self._operator(client), generator=self._vectors(), tol=self.tol,
                    progress=_after(spent, progress),
                )
            )  # fmt: skip
            spent += traces[-1].iterations
        assert options.pairs
        result = published_comparison(traces, options.pairs)
        return Crossed(result, options, rounds, matvecs=spent)

    def loader(self) -> Loader:
        """Return the loader that the problem's own products begin with."""
        return loader(self.problem, self.resampling)

    def _operator(self, client: Client | None) -> Operator:
        model = client.model if client else self.problem.model
        source = loader(self.problem, self.resampling, client)
        if not self.resampling.resample:
            return self.curvature(model, source())
        return Resampled(lambda batches: self.curvature(model, batches), source)

    def _vectors(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.resampling.seed)


def _after(before: int, progress: Progress | None) -> Progress | None:
    return None if progress is None else lambda done, _, *text: progress(before + done, None, *text)
