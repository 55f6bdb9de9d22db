"""One checkpoint, everything asked of it, in the record that `fedscope hessian --json` prints."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import problem as problems
from fedscope.landscape.clients import cross_client
from fedscope.landscape.density import spectral_density
from fedscope.landscape.eigen import top_eigenpairs
from fedscope.landscape.hessian import Hessian
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.problem import Problem
from fedscope.landscape.progress import Progress
from fedscope.landscape.pyhessian_engine import pyhessian_spectrum
from fedscope.landscape.results import CrossClient, Density, Eigenpairs, Estimate, Pairs, Reading, Trace
from fedscope.landscape.trace import trace
from fedscope.streams import torch_stream

SCHEMA = "fedscope/hessian/1"
Record = dict[str, Any]
Stage = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Request:
    """What to measure, and how well."""

    top_k: int = 1
    tol: float = 1e-3
    probes: int | None = None  # fixed number of trace probes; None: until trace_rtol
    trace_rtol: float = 0.05
    density: bool = False
    clients: bool = False
    client_probes: int = 32
    pairs: Pairs = "distinct"
    engine: Literal["fedscope", "pyhessian"] = "fedscope"
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None


def measure(problem: Problem, request: Request, stage: Stage) -> tuple[Record, Density | None]:
    """Return the JSON record of design contract ``fedscope/hessian/1``, and the density if one was asked for.

    ``stage(title)`` wraps each long step and yields its progress callback. Non-finite numbers become null
    and are counted under ``non_finite``.

    Raises:
        UserError: the request does not fit the problem.
    """
    start = time.perf_counter()
    if request.engine == "pyhessian":
        if request.density or request.clients or request.top_k > 1:
            raise UserError(
                "--engine pyhessian gives λ_max and the trace; drop --density, --clients, --top-k"
            )
        (pairs, total), density, cross = _pyhessian(problem, request, stage), None, None
    else:
        pairs, total, density, cross = _fedscope(problem, request, stage)
    record: Record = {
        "schema": SCHEMA,
        "checkpoint": problem.checkpoint,
        "problem": {
            **problem.description,
            "bn": request.bn,
            "operator": "hessian",
            "engine": request.engine,
            "reading": "paper",
        },
        "lambda_max": _eigenvalues(pairs)[0],
        "eigenvalues": _eigenvalues(pairs),
        "converged": pairs.converged,
        "trace": {
            "value": total.value,
            "stderr_probe": total.stderr_probe,
            "stderr_data": total.stderr_data,
            "probes": total.probes,
        },
        "density": density and {"grid": density.grid, "density": density.density, "sigma": density.sigma},
        "cross_client": cross and _cross_client(cross, request),
        "matvecs": sum(part.matvecs for part in (pairs, total, density, cross) if part),
        "seconds": time.perf_counter() - start,
        "versions": dict(request.versions or {}),
    }
    return finite(record), density


def _fedscope(
    problem: Problem, request: Request, stage: Stage
) -> tuple[Eigenpairs, Trace, Density | None, CrossClient | None]:
    seed = problem.source.seed

    def stream(purpose: str) -> torch.Generator:
        return torch_stream(seed, purpose, device=problem.source.device)

    def hessian(model: nn.Module) -> Hessian:
        return Hessian(model, problem.loss_fn, problem.batches, bn=request.bn)

    if request.clients:
        problems.client_files(problem)  # refused now rather than after the long steps
    operator, density, cross = hessian(problem.model), None, None
    with stage(f"{problem.title}: λ_max, products") as progress:
        pairs = top_eigenpairs(
            operator, k=request.top_k, tol=request.tol, generator=stream("lanczos"), progress=progress
        )
    with stage(f"{problem.title}: trace, products") as progress:
        total = trace(
            operator,
            rtol=None if request.probes else request.trace_rtol,
            probes=request.probes,
            generator=stream("trace"),
            progress=progress,
        )
    if request.density:
        with stage(f"{problem.title}: density, products") as progress:
            density = spectral_density(operator, generator=stream("density"), progress=progress)
    if request.clients:
        with stage(f"{problem.title}: cross-client, products") as progress:
            cross = cross_client(
                (hessian(model) for model in problems.clients(problem)),
                probes=request.client_probes,
                seed=seed,
                pairs=request.pairs,
                groups=min(8, request.client_probes),
                progress=progress,
            )
    return pairs, total, density, cross


def _pyhessian(problem: Problem, request: Request, stage: Stage) -> tuple[Eigenpairs, Trace]:
    with stage(f"{problem.title}: PyHessian, products") as progress:
        pairs, total = pyhessian_spectrum(
            problem.model, problem.loss_fn, problem.batches, seed=problem.source.seed, bn=request.bn
        )
        progress(pairs.matvecs + total.matvecs, None)
    return pairs, total


def _eigenvalues(pairs: Eigenpairs) -> list[Record]:
    columns = (pairs.values.tolist(), pairs.residuals.tolist(), pairs.stderr_data.tolist())
    return [
        {"value": value, "residual": residual, "stderr_data": stderr}
        for value, residual, stderr in zip(*columns, strict=True)
    ]


def _cross_client(cross: CrossClient, request: Request) -> Record:
    def estimates(readings: Mapping[Reading, Estimate]) -> Record:
        return {name: {"value": e.value, "stderr": e.stderr} for name, e in readings.items()}

    return {
        "clients": cross.clients,
        "pairs": cross.pairs,
        "probes": request.client_probes,
        "H_N": estimates(cross.H_N),
        "H_D": estimates(cross.H_D),
    }


def finite(record: Record) -> Record:
    """Return ``record`` as plain JSON data; non-finite numbers become null, counted under ``non_finite``."""
    count = 0

    def plain(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor):
            return plain(value.tolist())
        if isinstance(value, float) and not math.isfinite(value):
            count += 1
            return None
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    result = plain(record)
    return {**result, "non_finite": count}
