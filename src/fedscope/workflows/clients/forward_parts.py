"""Parts of the record of a round from losses and gradients alone: noise, critical steps, barriers."""

from collections.abc import Sequence

from fedscope.landscape.gradients.client_noise import client_gradient_noise
from fedscope.landscape.gradients.noise_results import NoiseScale, Ratio
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.landscape.paths.barriers import averaging_barrier, pair_barriers
from fedscope.landscape.paths.critical_sharpness import update_sharpness
from fedscope.landscape.paths.path_results import CriticalStep
from fedscope.records.entries import Record, estimate_entry
from fedscope.records.number_types import or_null
from fedscope.streams import key
from fedscope.workflows.clients.clients_request import ClientsRequest
from fedscope.workflows.clients.round import LoadedRound


def noise_entry(one: LoadedRound, request: ClientsRequest, progress: Progress) -> tuple[Record, int]:
    """Return how the clients' gradients at the global model scatter, and the gradients that were taken."""
    problem = one.problem
    found = client_gradient_noise(
        problem.model,
        problem.loss_fn,
        [client.batches for client in one.clients],
        weights=one.shares,
        bn=request.bn,
        seed=key(problem.source.seed, "gradient noise"),
        progress=progress,
    )
    return {
        "clients": [_scale(client) for client in found.clients],
        "whole": _scale(found.whole),
        "within": estimate_entry(found.within),
        "between": estimate_entry(found.between),
        "apart": [estimate_entry(client) for client in found.apart],
        "relative": _ratio(found.relative),
        "dissimilarity": _ratio(found.dissimilarity),
    }, found.gradients


def critical_entry(one: LoadedRound, request: ClientsRequest, progress: Progress) -> tuple[Record, int]:
    """Return how far along the updates the global loss falls, and the forward passes over the samples."""
    problem = one.problem
    found = update_sharpness(
        one.anchor(request.anchor),
        problem.loss_fn,
        problem.batches,
        [client.model.state_dict() for client in one.clients],
        weights=one.shares,
        bn=request.bn,
        progress=progress,
    )
    progress(found.passes, None)
    return {
        "anchor": request.anchor,
        "loss": or_null(found.loss),
        "server": _step(found.server),
        "clients": [_step(step) for step in found.clients],
    }, found.passes


def barriers_entry(one: LoadedRound, request: ClientsRequest, progress: Progress) -> tuple[Record, int]:
    """Return the barriers of all pairs of clients by the global loss, and the forward passes."""
    problem, seed = one.problem, key(one.problem.source.seed, "barriers")
    states = [client.model.state_dict() for client in one.clients]
    args = (problem.model, problem.loss_fn, problem.batches, states)
    pairs = pair_barriers(*args, bn=request.bn, seed=seed, progress=progress)
    mean = averaging_barrier(*args, weights=one.shares, bn=request.bn)
    rows = [[pairs.estimate(i, j) for j in range(len(states))] for i in range(len(states))]
    return {
        "mean": estimate_entry(pairs.mean),
        "average": estimate_entry(mean.estimate()),
        "matrix": _off_diagonal([[value.value for value in row] for row in rows]),
        "stderr": _off_diagonal([[value.stderr for value in row] for row in rows]),
        "low": _off_diagonal(pairs.low.tolist()),
        "high": _off_diagonal(pairs.high.tolist()),
        "similarities": pairs.similarities.tolist(),
    }, pairs.passes + mean.passes


def _off_diagonal(rows: Sequence[Sequence[float]]) -> list[list[float | None]]:
    return [[None if i == j else value for j, value in enumerate(row)] for i, row in enumerate(rows)]


def _scale(found: NoiseScale) -> Record:
    return {
        "trace": estimate_entry(found.trace),
        "square": estimate_entry(found.square),
        "scale": _ratio(found.scale),
        "samples": found.samples,
    }


def _ratio(found: Ratio) -> Record:
    """Return a ratio's entry; an interval without an upper end has null there."""
    low, high = found.interval()
    return {
        "value": or_null(found.value),
        "stderr": or_null(found.stderr),
        "interval": [or_null(low), or_null(high)],
        "resolved": found.resolved,
    }


def _step(found: CriticalStep) -> Record:
    low, high = found.interval()
    return {
        "step": or_null(found.step),
        "stderr": or_null(found.stderr),
        "interval": [or_null(low), or_null(high)],
        "length": found.length,
        "rises_at_once": found.step == 0,
        "never_rises": found.step == float("inf"),
    }
