"""One checkpoint, everything asked of it, in the record that `fedscope hessian --json` prints."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.distributed import ProcessGroup

from fedscope.errors import UserError
from fedscope.landscape.aspublished import AsPublished
from fedscope.landscape.batches import Batches
from fedscope.landscape.crossing import Crossed, Crossing, ReadingName, compare_clients
from fedscope.landscape.density import spectral_density
from fedscope.landscape.eigen import top_eigenpairs
from fedscope.landscape.flatloss import FlatLoss
from fedscope.landscape.forms import PLAIN, Form
from fedscope.landscape.gaussnewton import EmpiricalFisher, GaussNewton
from fedscope.landscape.hessian import Hessian
from fedscope.landscape.keeping import Keeper, key
from fedscope.landscape.layers import layer_eigenpairs, layer_patterns
from fedscope.landscape.lossoperator import LossOperator
from fedscope.landscape.nonfinite import check_finite, check_products
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.operators import Operator
from fedscope.landscape.participants import Participants
from fedscope.landscape.problem import Problem
from fedscope.landscape.progress import Progress
from fedscope.landscape.pyhessian_engine import pyhessian_spectrum
from fedscope.landscape.records import (
    Record,
    density_entry,
    eigenvalues,
    finite,
    trace_entry,
)
from fedscope.landscape.resampled import Loader, Resampling
from fedscope.landscape.results import HESSIAN_SCHEMA, Density, Eigenpairs, Trace
from fedscope.landscape.trace import trace
from fedscope.streams import key as stream_key
from fedscope.streams import torch_stream

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
    both_ends: bool = False  # also the k smallest
    layers: bool = False  # also λ_max of each layer's own block
    tol: float = 1e-3
    probes: int | None = None  # fixed number of trace probes; None: until trace_rtol
    trace_rtol: float = 0.05
    density: bool = False
    clients: bool = False
    crossing: Crossing = field(default_factory=Crossing)
    reading: ReadingName = "paper"
    resampling: Resampling = field(default_factory=Resampling)  # of reading code
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
    cross: Crossed | None = None
    loader: Loader | None = None  # of reading code
    layers: Mapping[str, Eigenpairs] | None = None


def measure(
    problem: Problem,
    request: Request,
    stage: Stage,
    *,
    keep: Path | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
) -> Record:
    """Return the JSON record of schema ``fedscope/hessian/1``.

    Non-finite numbers become null and are counted under ``non_finite``.

    Args:
        problem: network, loss and samples.
        request: what to measure.
        stage: ``stage(title)`` wraps each long step and yields its progress callback.
        keep: folder of results and of an interrupted run's products (:mod:`fedscope.landscape.keeping`); a
            result that is there is returned, with ``reused`` true.
        again: do not look for a result.
        group: processes that call this with the same arguments and share every product's batches; nothing
            is kept of such a run.

    Raises:
        UserError: the request does not fit the problem, or something in it, or in its clients, is not finite.
    """
    keeper = Keeper(keep if group is None else None)
    people = _participants(problem, request)
    asked = _asked(problem, request, people)
    operator = _curvature(problem, request, group)(problem.model, problem.batches)
    check_finite(str(problem.path), problem.model, operator.loss)
    name = key(operator, asked)
    found = None if again else keeper.result(name)
    if found is None:
        found = _measured(problem, request, people, stage, keeper, operator, group)
        keeper.finish(name, found)
        return {**found, "reused": False}
    return {**found, "checkpoint": problem.checkpoint, "reused": True}


def _asked(problem: Problem, request: Request, people: Participants | None) -> Record:
    """Return what a result depends on beside the operator: everything but versions, which only label it."""
    asked = {**asdict(request), "versions": None, "people": people.fingerprint() if people else None}
    asked["problem"] = problem.description  # its seed draws the probes, and the result repeats its names
    # The published scripts draw from the run's training data, whatever the samples are.
    asked["run"] = problem.info.model_dump_json() if problem.info and request.reading == "code" else None
    return asked


def _measured(
    problem: Problem,
    request: Request,
    people: Participants | None,
    stage: Stage,
    keeper: Keeper,
    operator: LossOperator,
    group: ProcessGroup | None,
) -> Record:
    _check(request, group)
    _check_clients(problem, request, people)
    start = time.perf_counter()
    if request.engine == "pyhessian":
        found = _pyhessian(problem, request, stage)
    elif request.reading == "code":
        found = _published(problem, request, people, stage)
    else:
        found = _fedscope(problem, request, people, stage, keeper, operator, group)
    form = PLAIN if request.engine == "pyhessian" else operator.form
    return finite(_record(problem, request, found, form, time.perf_counter() - start))


def _check(request: Request, group: ProcessGroup | None) -> None:
    if not _certified(request) and (request.both_ends or request.layers or group):
        raise UserError(
            "--both-ends, --layers and torchrun are for fedscope's own estimators; drop --engine pyhessian "
            "and --reading code"
        )
    if request.engine == "pyhessian":
        if request.density or request.clients or request.top_k > 1 or request.probes:
            raise UserError(
                "--engine pyhessian gives λ_max and the trace by its own stopping rules; drop --density, "
                "--clients, --top-k and --probes"
            )
        if request.operator != "hessian" or request.parameters:
            raise UserError("--engine pyhessian has the whole Hessian only; drop --operator and --parameters")
        if request.reading == "code":
            raise UserError("--reading code has its own estimators; drop --engine pyhessian")


def _check_clients(problem: Problem, request: Request, people: Participants | None) -> None:
    for client in people or ():
        loss = FlatLoss(client.model, problem.loss_fn, client.batches, bn=request.bn)
        check_finite(f"client {client.number} of {problem.path}", client.model, loss)


def _record(problem: Problem, request: Request, found: _Found, form: Form, seconds: float) -> Record:
    pairs, total, density, cross = found.pairs, found.trace, found.density, found.cross
    return {
        "schema": HESSIAN_SCHEMA,
        "checkpoint": problem.checkpoint,
        "samples_sha256": problem.batches.sha256,
        "batch_sizes": problem.batches.sizes,
        "problem": {
            **problem.description,
            "bn": request.bn,
            "operator": request.operator,
            **({"parameters": " ".join(request.parameters)} if request.parameters else {}),
            "engine": request.engine,
            "reading": request.reading,
            **form.entry,
            **(_resampled(problem, found.loader, request.resampling) if found.loader else {}),
        },
        "lambda_max": eigenvalues(pairs)[0],
        "eigenvalues": _wanted(eigenvalues(pairs), request),
        "both_ends": request.both_ends,  # the last half of these are the smallest
        "layers": found.layers
        and [{"name": name, **eigenvalues(own)[0]} for name, own in found.layers.items()],
        "converged": pairs.converged if _certified(request) else None,
        "noise": pairs.noise if math.isfinite(pairs.noise) else None,
        "trace": trace_entry(total, converged=_reached(total, request)),
        "density": density and density_entry(density),
        "cross_client": cross and cross.record(),
        "matvecs": sum(
            part.matvecs for part in (pairs, total, density, cross, *(found.layers or {}).values()) if part
        ),
        "seconds": seconds,
        "versions": dict(request.versions or {}),
    }


def _wanted(entries: list[Record], request: Request) -> list[Record]:
    """Return as many entries of either end as were asked for."""
    top, bottom = entries[: request.top_k], entries[len(entries) - request.top_k :]
    return [*top, *bottom] if request.both_ends else top


def _curvature(
    problem: Problem, request: Request, group: ProcessGroup | None = None
) -> Callable[..., LossOperator]:
    """Return what makes the operator of a model on batches, or of some of its parameters."""
    kind, chosen = OPERATORS[request.operator], request.parameters or None

    def curvature(
        model: nn.Module, batches: Batches, parameters: Sequence[str] | None = chosen
    ) -> LossOperator:
        return kind(model, problem.loss_fn, batches, bn=request.bn, parameters=parameters, group=group)

    return curvature


def _fedscope(
    problem: Problem,
    request: Request,
    people: Participants | None,
    stage: Stage,
    keeper: Keeper,
    whole: LossOperator,
    group: ProcessGroup | None,
) -> _Found:
    seed = problem.source.seed

    def stream(purpose: str) -> torch.Generator:
        return torch_stream(seed, purpose)  # on the CPU: the same probes on every device

    plain = _curvature(problem, request, group)

    def curvature(model: nn.Module, batches: Batches) -> Operator:
        return keeper.operator(plain(model, batches))

    options = request.crossing.settled("paper")
    density, cross, layers = None, None, None
    operator = keeper.operator(whole)
    k = max(request.top_k, (options.overlap or 0) * request.clients)
    with stage(f"{problem.title}: λ_max, products") as progress:
        pairs = top_eigenpairs(
            operator, k=k, which="both" if request.both_ends else "largest", tol=request.tol,
            generator=stream("lanczos"), progress=progress,
        )  # fmt: skip
    check_products(str(problem.path), whole, pairs.values)
    with stage(f"{problem.title}: trace, products") as progress:
        total = trace(
            operator,
            rtol=None if request.probes else request.trace_rtol,
            probes=request.probes,
            known=pairs.subspace,
            generator=stream("trace"),
            progress=progress,
        )
    if request.layers:
        with stage(f"{problem.title}: λ_max of each layer, products") as progress:
            layers = layer_eigenpairs(
                lambda names: keeper.operator(plain(problem.model, problem.batches, names)),
                layer_patterns(whole.names), tol=request.tol, seed=stream_key(seed, "layers"),
                progress=progress,
            )  # fmt: skip
    if request.density:
        with stage(f"{problem.title}: density, products") as progress:
            density = spectral_density(operator, generator=stream("density"), progress=progress)
    if people:
        with stage(f"{problem.title}: cross-client, products") as progress:
            cross = compare_clients(
                people,
                options,
                curvature,
                seed=seed,
                leading=pairs.vectors,
                tol=request.tol,
                progress=progress,
            )
    return _Found(pairs, total, density, cross, layers=layers)


def _participants(problem: Problem, request: Request) -> Participants | None:
    """Return the clients to compare; what is wrong with them is said before the long steps."""
    if not request.clients:
        if request.crossing.overlap:
            raise UserError("--overlap is of the clients with the global model; add --clients")
        return None
    options = request.crossing.settled(request.reading)
    assert options.weights
    assert options.data
    return Participants(problem, options.weights, options.data, latest=request.reading == "code")


def _published(problem: Problem, request: Request, people: Participants | None, stage: Stage) -> _Found:
    crossing = request.crossing
    if request.density or request.probes or crossing.probes or crossing.overlap:
        raise UserError(
            "the published scripts have no density, no overlap and no fixed number of probes; drop --density,"
            " --figure, --overlap, --probes and --client-probes, or use --reading paper"
        )
    scripts = AsPublished(problem, request.resampling, _curvature(problem, request), request.tol)
    source, cross = scripts.loader(), None
    with stage(f"{problem.title}: λ_max as published, products") as progress:
        pairs = scripts.eigenpairs(request.top_k, progress)
    with stage(f"{problem.title}: trace as published, products") as progress:
        total = scripts.trace(progress)
    if people:
        with stage(f"{problem.title}: cross-client as published, products") as progress:
            cross = scripts.clients(people, crossing.settled("code"), progress)
    return _Found(pairs, total, cross=cross, loader=source)


def _pyhessian(problem: Problem, request: Request, stage: Stage) -> _Found:
    with stage(f"{problem.title}: PyHessian, products") as progress:
        pairs, total = pyhessian_spectrum(
            problem.model,
            problem.loss_fn,
            problem.batches,
            seed=stream_key(problem.source.seed, "pyhessian"),
            tol=request.tol,
            bn=request.bn,
        )
        progress(pairs.matvecs + total.matvecs, None)
    return _Found(pairs, total)


def _certified(request: Request) -> bool:
    return request.engine == "fedscope" and request.reading == "paper"


def _reached(total: Trace, request: Request) -> bool | None:
    if not _certified(request):
        return None
    return bool(request.probes or total.stderr_probe <= request.trace_rtol * abs(total.value))


def _resampled(problem: Problem, source: Loader, resampling: Resampling) -> Record:
    """Return what reading ``code`` adds to the problem's entry, and what it has otherwise."""
    pipeline = problem.info.data.augmentation if problem.info and resampling.augment else "none"
    return {
        "samples": source.samples,
        "batch_size": source.batch_size,
        "product_batches": source.batches,
        "resample": resampling.resample,
        "augmentation": pipeline,
        "seed": resampling.seed,
    }
