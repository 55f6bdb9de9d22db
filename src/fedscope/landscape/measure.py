"""One checkpoint, everything asked of it, in the record that `fedscope hessian --json` prints."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
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
from fedscope.landscape.gaussnewton import EmpiricalFisher, GaussNewton
from fedscope.landscape.hessian import Hessian
from fedscope.landscape.lossoperator import LossOperator
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.problem import Problem
from fedscope.landscape.progress import Progress
from fedscope.landscape.pyhessian_engine import pyhessian_spectrum
from fedscope.landscape.results import (
    HESSIAN_SCHEMA,
    CrossClient,
    Density,
    Eigenpairs,
    Estimate,
    Pairs,
    Reading,
    Trace,
)
from fedscope.landscape.trace import trace
from fedscope.streams import key, torch_stream

Record = dict[str, Any]
OperatorName = Literal["hessian", "ggn", "fisher"]
OPERATORS: dict[OperatorName, type[LossOperator]] = {
    "hessian": Hessian,
    "ggn": GaussNewton,
    "fisher": EmpiricalFisher,
}
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
    operator: OperatorName = "hessian"
    parameters: tuple[str, ...] = ()  # patterns of names; none: all parameters
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Found:
    pairs: Eigenpairs
    trace: Trace
    density: Density | None = None
    cross: CrossClient | None = None
    client_rounds: tuple[int | None, ...] = ()


def measure(problem: Problem, request: Request, stage: Stage) -> tuple[Record, Density | None]:
    """Return the JSON record of schema ``fedscope/hessian/1``, and the density if one was asked for.

    ``stage(title)`` wraps each long step and yields its progress callback. Non-finite numbers become null
    and are counted under ``non_finite``.

    Raises:
        UserError: the request does not fit the problem.
    """
    start = time.perf_counter()
    if request.engine == "pyhessian":
        if request.density or request.clients or request.top_k > 1 or request.probes:
            raise UserError(
                "--engine pyhessian gives λ_max and the trace by its own stopping rules; drop --density, "
                "--clients, --top-k and --probes"
            )
        if request.operator != "hessian" or request.parameters:
            raise UserError("--engine pyhessian has the whole Hessian only; drop --operator and --parameters")
        found = _pyhessian(problem, request, stage)
    else:
        found = _fedscope(problem, request, stage)
    pairs, total, density, cross = found.pairs, found.trace, found.density, found.cross
    record: Record = {
        "schema": HESSIAN_SCHEMA,
        "checkpoint": problem.checkpoint,
        "problem": {
            **problem.description,
            "bn": request.bn,
            "operator": request.operator,
            **({"parameters": " ".join(request.parameters)} if request.parameters else {}),
            "engine": request.engine,
            "reading": "paper",
        },
        "lambda_max": _eigenvalues(pairs)[0],
        "eigenvalues": _eigenvalues(pairs),
        "converged": pairs.converged if request.engine == "fedscope" else None,
        "trace": {
            "value": total.value,
            "stderr_probe": total.stderr_probe,
            "stderr_data": total.stderr_data,
            "probes": total.probes,
            "converged": _reached(total, request),
        },
        "density": density and {"grid": density.grid, "density": density.density, "sigma": density.sigma},
        "cross_client": cross and _cross_client(cross, found.client_rounds, request),
        "matvecs": sum(part.matvecs for part in (pairs, total, density, cross) if part),
        "seconds": time.perf_counter() - start,
        "versions": dict(request.versions or {}),
    }
    return finite(record), density


def _fedscope(problem: Problem, request: Request, stage: Stage) -> _Found:
    seed = problem.source.seed

    def stream(purpose: str) -> torch.Generator:
        return torch_stream(seed, purpose)  # on the CPU: the same probes on every device

    def curvature(model: nn.Module) -> LossOperator:
        kind, chosen = OPERATORS[request.operator], request.parameters or None
        return kind(model, problem.loss_fn, problem.batches, bn=request.bn, parameters=chosen)

    def clients_curvature() -> Iterator[LossOperator]:
        for client in problems.clients(problem):
            rounds.append(client.round)
            yield curvature(client.model)

    rounds: list[int | None] = []
    if request.clients:
        problems.client_files(problem)  # refused now rather than after the long steps
    operator, density, cross = curvature(problem.model), None, None
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
                clients_curvature(),
                probes=request.client_probes,
                seed=key(seed, "cross-client"),
                pairs=request.pairs,
                groups=min(8, request.client_probes),
                progress=progress,
            )
    return _Found(pairs, total, density, cross, tuple(rounds))


def _pyhessian(problem: Problem, request: Request, stage: Stage) -> _Found:
    with stage(f"{problem.title}: PyHessian, products") as progress:
        pairs, total = pyhessian_spectrum(
            problem.model,
            problem.loss_fn,
            problem.batches,
            seed=key(problem.source.seed, "pyhessian"),
            tol=request.tol,
            bn=request.bn,
        )
        progress(pairs.matvecs + total.matvecs, None)
    return _Found(pairs, total)


def _reached(total: Trace, request: Request) -> bool | None:
    if request.engine == "pyhessian":
        return None
    return bool(request.probes or total.stderr_probe <= request.trace_rtol * abs(total.value))


def _eigenvalues(pairs: Eigenpairs) -> list[Record]:
    columns = (pairs.values.tolist(), pairs.residuals.tolist(), pairs.stderr_data.tolist())
    return [
        {"value": value, "residual": residual, "stderr_data": stderr}
        for value, residual, stderr in zip(*columns, strict=True)
    ]


def _cross_client(cross: CrossClient, rounds: tuple[int | None, ...], request: Request) -> Record:
    def estimates(readings: Mapping[Reading, Estimate]) -> Record:
        return {name: {"value": e.value, "stderr": e.stderr} for name, e in readings.items()}

    return {
        "clients": cross.clients,
        "pairs": cross.pairs,
        "probes": request.client_probes,
        "rounds": rounds,  # that each client's upload is of
        "H_N": estimates(cross.H_N),
        "H_D": estimates(cross.H_D),
    }


def _unformed(name: str, value: Any) -> bool:
    return (
        (name == "residual" or name.startswith("stderr")) and isinstance(value, float) and math.isnan(value)
    )


def finite(record: Record) -> Record:
    """Return ``record`` as plain JSON data; non-finite numbers become null, counted under ``non_finite``.

    An error bar that could not be formed (one batch, another engine) is null too, but no number went wrong.
    """
    count = 0

    def plain(value: Any) -> Any:
        nonlocal count
        if isinstance(value, Tensor):
            return plain(value.tolist())
        if isinstance(value, float) and not math.isfinite(value):
            count += 1
            return None
        if isinstance(value, Mapping):
            return {name: None if _unformed(name, item) else plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return value

    result = plain(record)
    return {**result, "non_finite": count}
