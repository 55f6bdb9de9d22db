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
from fedscope.landscape.operators.progress_callback import Progress, continued
from fedscope.landscape.published.estimators import (
    PublishedTrace,
    Resampled,
    published_comparison,
    published_eigenpairs,
    published_trace,
)
from fedscope.landscape.spectral.spectral_results import Eigenpairs, Trace
from fedscope.workflows.curvature.compared_clients import ClientComparison
from fedscope.workflows.curvature.record import Estimates
from fedscope.workflows.progress import Stage
from fedscope.workflows.requests import Request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import Participants, RunClient, loader


@dataclass(frozen=True)
class AsPublished:
    """The estimators of reading ``code`` on one problem, which stop at the relative change ``tol``."""

    problem: Problem
    request: Request
    curvature: Callable[[nn.Module, Batches], LossOperator]
    stage: Stage

    def estimates(self, participants: Participants | None) -> Estimates:
        title, clients = self.problem.title, None
        source = loader(self.problem, self.request.resampling)
        with self.stage(f"{title}: λ_max as published, products") as progress:
            pairs = self._eigenpairs(progress)
        with self.stage(f"{title}: trace as published, products") as progress:
            total = self._trace(progress)
        if participants:
            with self.stage(f"{title}: cross-client as published, products") as progress:
                clients = self._clients(participants, progress)
        return Estimates(pairs, total, clients=clients, loader=source)

    def _eigenpairs(self, progress: Progress) -> Eigenpairs:
        """Return the eigenvalues of largest magnitude, in the order found; residuals and errors are NaN."""
        request, vectors = self.request, self._vectors()
        found = published_eigenpairs(
            self._operator(None), k=request.top_k, generator=vectors, tol=request.tol, progress=progress
        )
        return Eigenpairs.bare(found.values, found.vectors, sum(found.iterations), request.resampling.seed)

    def _trace(self, progress: Progress) -> Trace:
        found = self._published_trace(None, progress)
        return Trace(
            value=found.value,
            stderr_probe=math.nan,
            stderr_data=math.nan,
            probes=found.iterations,
            matvecs=found.iterations,
            seed=self.request.resampling.seed,
        )

    def _clients(self, participants: Participants, progress: Progress) -> ClientComparison:
        rounds, traces, spent = dict[int, int | None](), list[PublishedTrace](), 0
        for client in participants:
            rounds[client.number] = client.info.round if client.info else None
            traces.append(self._published_trace(client, continued(progress, spent)))
            spent += traces[-1].iterations
        options = self.request.cross_client.settled("code")
        assert options.pairs
        return ClientComparison(published_comparison(traces, options.pairs), options, rounds, matvecs=spent)

    def _published_trace(self, client: RunClient | None, progress: Progress | None) -> PublishedTrace:
        return published_trace(
            self._operator(client), generator=self._vectors(), tol=self.request.tol, progress=progress
        )

    def _operator(self, client: RunClient | None) -> Operator:
        model, resampling = client.model if client else self.problem.model, self.request.resampling
        source = loader(self.problem, resampling, client)
        if not resampling.resample:
            return self.curvature(model, source())
        return Resampled(lambda batches: self.curvature(model, batches), source)

    def _vectors(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.request.resampling.seed)
