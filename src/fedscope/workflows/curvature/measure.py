"""One checkpoint, everything asked of it, in the record that `fedscope hessian --json` prints."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup

from fedscope.choices import OperatorName
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.forms import PLAIN
from fedscope.landscape.operators.base import Operator
from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_finite, check_products
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian import Hessian
from fedscope.landscape.operators.product_cache import identity
from fedscope.landscape.published.pyhessian import pyhessian_spectrum
from fedscope.landscape.spectral.eigenpairs import top_eigenpairs
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.landscape.spectral.layer_blocks import layer_eigenpairs, layer_patterns
from fedscope.landscape.spectral.slq_density import spectral_density
from fedscope.records.entries import Record, finite
from fedscope.records.hessian import HessianRecord
from fedscope.streams import key as stream_key
from fedscope.streams import torch_stream
from fedscope.workflows.curvature.as_published import AsPublished
from fedscope.workflows.curvature.cross_client import compare_clients
from fedscope.workflows.curvature.record import Found, measured_record, problem_entry
from fedscope.workflows.progress import Stage
from fedscope.workflows.requests import Request, check_request
from fedscope.workflows.results.cache import Keeper, key
from fedscope.workflows.results.lookup import ALL, Part, Wanted, earlier, trimmed
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import Participants

OPERATORS: dict[OperatorName, type[LossOperator]] = {
    "hessian": Hessian,
    "ggn": GaussNewton,
    "fisher": EmpiricalFisher,
}
_MACHINE = ("device", "threads")  # on which a result depends by rounding only


def measure(
    problem: Problem,
    request: Request,
    stage: Stage,
    *,
    keep: Path | Keeper | None = None,
    again: bool = False,
    fuller: bool = False,
    name: str | None = None,
    group: ProcessGroup | None = None,
) -> HessianRecord:
    """Return the record of schema ``fedscope/hessian/1``.

    Non-finite numbers become null and are counted under ``non_finite``.

    Args:
        problem: network, loss and samples.
        request: what to measure.
        stage: ``stage(title)`` wraps each long step and yields its progress callback.
        keep: folder of results and of an interrupted run's products
            (:mod:`fedscope.workflows.results.cache`), or its keeper. What a result there has of the request
            is taken from it; ``reused`` is true where that is all.
        again: do not look for a result.
        fuller: take a result with more probes than a fixed number in the request, too.
        name: of the result in ``keep``, which it replaces; None: by the operator and the request.
        group: processes that call this with the same arguments and share every product's batches; nothing
            is kept of such a run.

    Raises:
        UserError: the request does not fit the problem, or something in it, or in its clients, is not finite.
    """
    check_request(request, parallel=group is not None)
    keeper = keep if isinstance(keep, Keeper) else Keeper(keep if group is None else None)
    people = _participants(problem, request)
    asked = _asked(problem, request, people)
    operator = _curvature(problem, request, group)(problem.model, problem.batches)
    check_finite(str(problem.path), problem.model, operator.loss)
    if name is None:
        name = key(operator, asked)
        found = None if again else keeper.result(name)
        if isinstance(found, HessianRecord):
            return found.edited(checkpoint=problem.checkpoint, reused=True)
    origin = people.origin() if people else {}
    known = None if again else _earlier(problem, request, origin, keeper, operator, fuller=fuller)
    if known and not known[1]:
        return trimmed(known[0], request).edited(checkpoint=problem.checkpoint, reused=True)
    record = _measured(problem, request, people, stage, keeper, operator, group, known)
    if record.cross_client:
        record = record.edited(cross_client={**origin, **record.cross_client.to_json()})
    record = record.edited(operator_sha256=identity(operator))
    keeper.finish(name, record)
    return record.edited(reused=False)


def _earlier(
    problem: Problem,
    request: Request,
    origin: Mapping[str, Any],
    keeper: Keeper,
    operator: LossOperator,
    *,
    fuller: bool,
) -> tuple[HessianRecord, set[Part]] | None:
    """Return the kept record that has most of the request, and the parts that it lacks.

    Of a network and loss of the user's own, whose code nothing names, only one of the same operator.
    """
    found = keeper.results(problem.sha256)
    if problem.info is None:
        found = [r for r in found if isinstance(r, HessianRecord) and r.operator_sha256 == identity(operator)]
    return earlier(found, request, wanted(problem, request, origin), fuller=fuller)


def wanted(problem: Problem, request: Request, origin: Mapping[str, Any]) -> Wanted:
    """Return what an earlier record must be of to answer a request, with clients of such an ``origin``."""
    entry = {name: value for name, value in problem_entry(problem, request).items() if name not in _MACHINE}
    entry = {"parameters": None, "loss": None, **entry}  # else a block of the parameters would do for all
    version = (request.versions or {}).get("fedscope")
    return Wanted(problem.sha256, entry, version, origin.get("uploads", {}), origin.get("rows_sha256"))


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
    known: tuple[HessianRecord, set[Part]] | None,
) -> HessianRecord:
    start, missing = time.perf_counter(), known[1] if known else ALL
    if "cross_client" in missing:
        _check_clients(problem, request, people)
    if request.engine == "pyhessian":
        found = _pyhessian(problem, request, stage)
    elif request.reading == "code":
        found = _published(problem, request, people, stage)
    else:
        found = _fedscope(problem, request, people, stage, keeper, operator, group, missing)
    form = PLAIN if request.engine == "pyhessian" else operator.form
    found = replace(found, form=form, seconds=time.perf_counter() - start)
    return HessianRecord.read(finite(measured_record(problem, request, found, known[0] if known else None)))


def _check_clients(problem: Problem, request: Request, people: Participants | None) -> None:
    for client in people or ():
        loss = FlatLoss(client.model, problem.loss_fn, client.batches, bn=request.bn)
        check_finite(f"client {client.number} of {problem.path}", client.model, loss)


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
    missing: Container[Part],
) -> Found:
    seed = problem.source.seed

    def stream(purpose: str) -> torch.Generator:
        return torch_stream(seed, purpose)  # on the CPU: the same probes on every device

    plain = _curvature(problem, request, group)

    def curvature(model: nn.Module, batches: Batches) -> Operator:
        return keeper.operator(plain(model, batches))

    operator, found = keeper.operator(whole), Found()
    options = request.crossing.settled("paper")
    overlap = (options.overlap or 0) if request.clients and "cross_client" in missing else 0
    pairs = None
    if overlap or "eigenvalues" in missing or "trace" in missing:  # whose basis helps the trace
        with stage(f"{problem.title}: λ_max, products") as progress:
            pairs = top_eigenpairs(
                operator, k=max(request.top_k, overlap), which="both" if request.both_ends else "largest",
                tol=request.tol, generator=stream("lanczos"), progress=progress,
            )  # fmt: skip
        check_products(str(problem.path), whole, pairs.values)
    if pairs and "eigenvalues" in missing:
        found = replace(found, pairs=pairs)
    if pairs and "trace" in missing:
        with stage(f"{problem.title}: trace, products") as progress:
            total = trace(
                operator,
                rtol=None if request.probes else request.trace_rtol,
                probes=request.probes,
                known=pairs.subspace,
                generator=stream("trace"),
                progress=progress,
            )
        found = replace(found, trace=total)
    if request.layers and "layers" in missing:
        with stage(f"{problem.title}: λ_max of each layer, products") as progress:
            layers = layer_eigenpairs(
                lambda names: keeper.operator(plain(problem.model, problem.batches, names)),
                layer_patterns(whole.names), tol=request.tol, seed=stream_key(seed, "layers"),
                progress=progress,
            )  # fmt: skip
        found = replace(found, layers=layers)
    if request.density and "density" in missing:
        with stage(f"{problem.title}: density, products") as progress:
            density = spectral_density(operator, generator=stream("density"), progress=progress)
        found = replace(found, density=density)
    if people and "cross_client" in missing:
        with stage(f"{problem.title}: cross-client, products") as progress:
            cross = compare_clients(
                people,
                options,
                curvature,
                seed=seed,
                leading=pairs.vectors if pairs else None,
                tol=request.tol,
                progress=progress,
            )
        found = replace(found, cross=cross)
    return found


def _participants(problem: Problem, request: Request) -> Participants | None:
    """Return the clients to compare; what is wrong with them is said before the long steps."""
    if not request.clients:
        return None
    options = request.crossing.settled(request.reading)
    assert options.weights
    assert options.data
    return Participants(problem, options.weights, options.data, latest=request.reading == "code")


def _published(problem: Problem, request: Request, people: Participants | None, stage: Stage) -> Found:
    scripts = AsPublished(problem, request.resampling, _curvature(problem, request), request.tol)
    source, cross = scripts.loader(), None
    with stage(f"{problem.title}: λ_max as published, products") as progress:
        pairs = scripts.eigenpairs(request.top_k, progress)
    with stage(f"{problem.title}: trace as published, products") as progress:
        total = scripts.trace(progress)
    if people:
        with stage(f"{problem.title}: cross-client as published, products") as progress:
            cross = scripts.clients(people, request.crossing.settled("code"), progress)
    return Found(pairs, total, cross=cross, loader=source)


def _pyhessian(problem: Problem, request: Request, stage: Stage) -> Found:
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
    return Found(pairs, total)
