"""One checkpoint, and every quantity of a request, in the record that `fedscope hessian --json` prints."""

import time
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, replace
from typing import Any

from torch import nn
from torch.distributed import ProcessGroup

from fedscope.choices import OperatorName
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.forms import PLAIN
from fedscope.landscape.operators.empirical_fisher import EmpiricalFisher
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_finite, check_products
from fedscope.landscape.operators.gauss_newton import GaussNewton
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.operators.monte_carlo_fisher import MonteCarloFisher
from fedscope.landscape.operators.product_cache import identity
from fedscope.landscape.published.engines import power_eigenpairs, pyhessian_spectrum
from fedscope.landscape.spectral.hutchinson_trace import trace
from fedscope.own import has_code
from fedscope.records.entries import Record, finite
from fedscope.records.hessian_record import HessianRecord
from fedscope.streams import key as stream_key
from fedscope.streams import torch_stream
from fedscope.workflows.curvature.as_published import AsPublished
from fedscope.workflows.curvature.certified import Certified, Trail
from fedscope.workflows.curvature.influential_samples import check_separable, with_influence
from fedscope.workflows.curvature.measurement_plan import choice
from fedscope.workflows.curvature.record import Estimates, measured_record, problem_entry
from fedscope.workflows.curvature.resources import BATCHES, Resources, resources_of
from fedscope.workflows.progress import Stage
from fedscope.workflows.requests import Request, Resampling, check_request
from fedscope.workflows.results.lookup import Criteria, Part, asked, asked_of, earlier, lacking, trimmed
from fedscope.workflows.results.result_cache import key
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import ClientOrigin, Participants
from fedscope.workflows.sources.server_state import adaptive_server
from fedscope.workflows.study import ALONE, Session

OPERATORS: dict[OperatorName, type[LossOperator]] = {
    "hessian": Hessian,
    "ggn": GaussNewton,
    "fisher": EmpiricalFisher,
    "mcfisher": MonteCarloFisher,
}
FEW_BATCHES = 8  # that tell the data's errors, on a GPU


def measure(
    problem: Problem,
    request: Request,
    session: Session = ALONE,
    *,
    more_probes: bool = False,
    name: str | None = None,
    trail: Trail | None = None,
    memory: int | None = None,
) -> HessianRecord:
    """Return the record of schema ``fedscope/hessian/1``.

    Non-finite numbers become null and are counted under ``non_finite``. Parts of the request that a kept
    result has are not measured; ``reused`` is true where none is.

    Args:
        problem: network, loss and samples.
        request: what to measure.
        session: see :class:`Session`.
        more_probes: accept a result with more probes than the fixed number of the request.
        name: of the kept result, which it replaces; None: by the operator and the request.
        trail: where a ``warm`` request's eigenvalues begin, and leave their eigenvectors.
        memory: bytes that the process may take; None: what the estimators take by themselves.
    """
    group = session.group
    check_request(request, parallel=group is not None)
    participants = compared_clients(problem, request)
    resources = resources_of(problem, request, memory, group)
    curvature = curvature_of(problem, request, group, resources)
    operator = curvature(problem.model, problem.batches)
    check_separable(operator, request)
    check_finite(str(problem.path), problem.model, operator.loss)

    def finished(record: HessianRecord) -> HessianRecord:
        return with_influence(record, problem, operator, request.influence)

    if name is None:
        name = result_name(problem, request, participants, operator, resources)
        found = None if session.again else session.cache.result(name)
        if isinstance(found, HessianRecord):
            return finished(found.edited(checkpoint=problem.checkpoint, reused=True))
    origin = participants.origin() if participants else None
    known, missing = known_of(problem, request, session, operator, origin, more_probes=more_probes)
    if known and not missing:
        record = _of_clients(trimmed(known, request), origin).edited(checkpoint=problem.checkpoint)
    else:
        if memory:
            place = "file" if resources.basis_folder else "memory"
            line = choice(problem.title, operator.plan, resources.rows or 0, place, resources.block or 1)
            session.reporter.note(line)
        made = _measured(
            problem, request, participants, session, operator, curvature, missing, trail, resources
        )
        record = HessianRecord.read(finite(measured_record(problem, request, made, known)))
        record = _of_clients(record, origin).edited(operator_sha256=identity(operator))
    session.cache.finish(name, record)
    return finished(record.edited(reused=not missing))


def result_name(
    problem: Problem,
    request: Request,
    participants: Participants | None,
    operator: LossOperator,
    resources: Resources,
) -> str:
    return key(operator, {**_question(problem, request, participants), **resources.entry})


def known_of(
    problem: Problem,
    request: Request,
    session: Session,
    operator: LossOperator,
    origin: ClientOrigin | None,
    *,
    more_probes: bool = False,
) -> tuple[HessianRecord | None, Set[Part]]:
    """Return the kept record that has most of a request, and what it lacks."""
    criteria = _criteria(problem, request, origin, operator, more_probes=more_probes)
    known = None if session.again else earlier(session.cache.results(problem.sha256), request, criteria)
    missing = lacking(known, request, criteria)
    if known and missing and known.batch_sizes != (operator.weights or ()):
        return None, asked(request)  # samples dealt otherwise: both do not go into one record
    return known, missing


def _of_clients(record: HessianRecord, origin: ClientOrigin | None) -> HessianRecord:
    if not (record.cross_client and origin):
        return record
    return record.edited(cross_client={**record.cross_client.to_json(), **asdict(origin)})


def _criteria(
    problem: Problem,
    request: Request,
    origin: ClientOrigin | None,
    operator: LossOperator,
    *,
    more_probes: bool,
) -> Criteria:
    """Return what a kept record must be of.

    The code of the user's own network and loss has no name, and adapters are no whole network: for them only
    records of the same ``operator`` count.
    """
    spec = problem.info.model if problem.info else None
    named = spec is not None and spec.lora is None and not has_code(spec.name)
    return Criteria(
        problem.sha256,
        asked_of(problem_entry(problem, request)),
        (request.versions or {}).get("fedscope"),
        problem.batches.sha256,
        origin.uploads if origin else {},
        origin.rows_sha256 if origin else None,
        None if named else identity(operator),
        more_probes,
    )


def _question(problem: Problem, request: Request, participants: Participants | None) -> Record:
    """Return what a result depends on beside the operator: everything but versions, which only label it."""
    if request.reading == "paper":
        request = replace(request, resampling=Resampling())  # has no effect
    plain = asdict(request)
    for name in ("as_kept", "only"):
        if not plain[name]:
            del plain[name]
    return {
        **plain,
        "versions": None,
        "influence": None,  # follows from the result, and from who holds the samples
        "people": participants.fingerprint() if participants else None,
        "problem": problem.description,  # its seed draws the probes, and the result repeats its names
        # the published scripts draw from the run's training data, whatever the samples are
        "run": problem.info.model_dump_json() if problem.info and request.reading == "code" else None,
    }


def _measured(
    problem: Problem,
    request: Request,
    participants: Participants | None,
    session: Session,
    operator: LossOperator,
    curvature: Callable[..., LossOperator],
    missing: Set[Part],
    trail: Trail | None,
    resources: Resources,
) -> Estimates:
    start, stage = time.perf_counter(), session.stage
    if "cross_client" in missing:
        _check_clients(problem, request, participants)
    if "preconditioned" in missing:
        adaptive_server(problem)  # refused before the products
    if request.engine == "pyhessian":
        found = _pyhessian(problem, request, stage)
    elif request.engine == "power":
        found = _power(problem, request, operator, stage)
    elif request.reading == "code":
        found = AsPublished(problem, request, curvature, stage).estimates(participants)
    else:
        estimators = Certified(problem, request, curvature, session, trail or Trail(), resources)
        found = estimators.estimates(operator, participants, missing)
    form = PLAIN if request.engine == "pyhessian" else operator.form
    spent = time.perf_counter() - start
    return replace(
        found, form=form, seconds=spent, batch_sizes=operator.weights or (), differences=operator.differences,
        departs=operator.departs,
    )  # fmt: skip


def _check_clients(problem: Problem, request: Request, participants: Participants | None) -> None:
    for client in participants or ():
        loss = FlatLoss(client.model, problem.loss_fn, client.batches, bn=request.bn)
        check_finite(f"client {client.number} of {problem.path}", client.model, loss)


def curvature_of(
    problem: Problem, request: Request, group: ProcessGroup | None, resources: Resources
) -> Callable[..., LossOperator]:
    kind, chosen = OPERATORS[request.operator], request.parameters or None
    own: dict[str, Any] = {}  # arguments of the kind
    if kind is MonteCarloFisher:
        own["seed"] = stream_key(problem.source.seed, "labels")
    if kind is Hessian:
        own["products"] = request.products

    def curvature(
        model: nn.Module, batches: Batches, parameters: Sequence[str] | None = chosen
    ) -> LossOperator:
        few = BATCHES if next(model.parameters()).device.type == "cpu" else FEW_BATCHES
        return kind(
            model, problem.loss_fn, batches, bn=request.bn, parameters=parameters, group=group,
            deal=few if request.estimates_trace else None, memory=resources.graphs, **own,
        )  # fmt: skip

    return curvature


def compared_clients(problem: Problem, request: Request) -> Participants | None:
    if not request.clients:
        return None
    options = request.cross_client.settled(request.reading)
    assert options.weights
    assert options.data
    return Participants(problem, options.weights, options.data, latest=request.reading == "code")


def _pyhessian(problem: Problem, request: Request, stage: Stage) -> Estimates:
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
    return Estimates(pairs, total)


def _power(problem: Problem, request: Request, operator: LossOperator, stage: Stage) -> Estimates:
    seed = problem.source.seed
    with stage(f"{problem.title}: power iteration, products") as progress:
        pairs = power_eigenpairs(operator, request.top_k, seed=stream_key(seed, "power"), progress=progress)
    check_products(str(problem.path), operator, pairs.values)
    rtol = None if request.probes else request.trace_rtol
    with stage(f"{problem.title}: trace, products") as progress:
        total = trace(
            operator,
            rtol=rtol,
            probes=request.probes,
            generator=torch_stream(seed, "trace"),
            progress=progress,
        )
    return Estimates(pairs, total)
