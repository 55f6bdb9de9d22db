"""The clients of one round measured, in the record that `fedscope clients --json` prints.

Every number of a client pairs with the others': one set of rows for each client and one for the global
loss, one starting vector and one set of probes for all. One operator is in memory at a time, with its graphs.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from torch import nn

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.errors import UserError
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.finite_checks import check_finite
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.operators.product_cache import identity
from fedscope.landscape.surroundings import surroundings
from fedscope.own import has_code
from fedscope.records.clients_record import CLIENTS_SCHEMA, ClientsRecord
from fedscope.records.entries import Record, finite
from fedscope.workflows.clients.clients_request import SAMPLES, ClientsRequest
from fedscope.workflows.clients.parts import Measuring
from fedscope.workflows.clients.round import LoadedRound, no_start, start_of
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.run_clients import Participants, round_uploads
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import ALONE, Session


def clients(
    targets: Targets,
    request: ClientsRequest,
    reporter: Reporter = SILENT,
    *,
    again: bool = False,
    possible: bool = False,
) -> list[ClientsRecord]:
    """Measure the clients of each checkpoint's round, or take what the registry has of the request.

    Args:
        targets: the rounds' global models, and the samples.
        request: what to measure, and how well.
        reporter: where progress and notes go.
        again: do not look for results.
        possible: leave out, with a note, the alignment of updates whose beginning was not kept.
    """
    request = replace(request, versions=request.versions or versions())
    few = replace(targets, samples=SAMPLES if targets.samples is None else targets.samples)
    session = Session.of(targets.registry, reporter, again=again)
    found = []
    for problem in problems(few, reporter):
        own = _possible(problem, request, reporter) if possible else request
        found.append(measure_clients(problem, own, session))
    return found


def _possible(problem: Problem, request: ClientsRequest, reporter: Reporter) -> ClientsRequest:
    if request.anchor != "start" or "alignment" not in request.only or start_of(problem):
        return request
    round_uploads(problem)  # without them nothing is measured, and the error says so
    reporter.note(f"{problem.title}: no alignment: {no_start(problem)}")
    return replace(request, only=tuple(part for part in request.only if part != "alignment"))


BATCHES = 16  # that tell the samples' errors


def measure_clients(problem: Problem, request: ClientsRequest, session: Session = ALONE) -> ClientsRecord:
    """Return the record of schema ``fedscope/clients/1`` of the clients of a checkpoint's round.

    Args:
        problem: the round's global model, and the samples of the global loss.
        request: what to measure.
        session: see :class:`Session`.
    """
    participants = Participants(problem, "client", "own", of_round=True)
    start = start_of(problem)
    moved = {"alignment", "critical"} & {*request.only}
    if start is None and (request.start or (moved and request.anchor == "start")):
        raise UserError(no_start(problem))

    def measured() -> ClientsRecord:
        one = LoadedRound.of(problem, participants)
        if moved:
            one.check_moved(request.anchor)
        measuring = Measuring(one, request, session, _curvature(problem, request))
        check_all_finite(one, measuring.curvature)
        entries = measuring.entries()
        if "diagonals" in request.only:
            entries["cross_client"] = measuring.diagonals(participants)
        departs = measuring.curvature(problem.model, problem.batches).departs
        about = _about(one, request, participants, departs)
        return ClientsRecord.read(finite({**about, **entries, **measuring.spent()}))

    name = _name(problem, request, participants, start.sha256 if start else None)
    return session.kept(name, ClientsRecord, measured, checkpoint=problem.checkpoint, reused=True)


def check_all_finite(one: LoadedRound, curvature: Callable[[nn.Module, Batches], LossOperator]) -> None:
    problem = one.problem
    check_finite(str(problem.path), problem.model, curvature(problem.model, problem.batches).loss)
    for client in one.clients:
        loss = curvature(client.model, client.batches).loss
        check_finite(f"client {client.number} of {problem.path}", client.model, loss)


def _curvature(problem: Problem, request: ClientsRequest) -> Callable[[nn.Module, Batches], LossOperator]:
    def curvature(model: nn.Module, batches: Batches) -> LossOperator:
        return Hessian(model, problem.loss_fn, batches, bn=request.bn, deal=BATCHES)

    return curvature


def _name(problem: Problem, request: ClientsRequest, participants: Participants, start: str | None) -> str:
    question = {
        "schema": CLIENTS_SCHEMA,
        "request": {**asdict(request), "versions": None},
        "weights": [problem.sha256, start, participants.fingerprint()],
        "samples": problem.batches.sha256,
        "population": problem.batches.population,
        "problem": problem.description,
        "info": problem.info.model_dump_json() if problem.info else None,
        "by": surroundings(problem.source.device),
        **_of_code(problem, request),
    }
    text = json.dumps(question, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _of_code(problem: Problem, request: ClientsRequest) -> dict[str, str]:
    """Return what tells that the code of a network of the user's own has changed: what it computes."""
    if problem.info is None or not has_code(problem.info.model.name):
        return {}
    return {"operator": identity(_curvature(problem, request)(problem.model, problem.batches))}


def _about(one: LoadedRound, request: ClientsRequest, participants: Participants, departs: str) -> Record:
    problem, origin = one.problem, participants.origin()
    hashes = {int(Path(name).stem): sha256 for name, sha256 in origin.uploads.items()}
    return {
        "schema": CLIENTS_SCHEMA,
        "checkpoint": problem.checkpoint,
        "start": one.start.entry if one.start else None,
        "problem": problem.entry(bn=request.bn, operator="hessian", engine="fedscope", departs=departs),
        "samples_sha256": problem.batches.sha256,
        "clients": [
            {
                "number": client.number,
                "share": share,
                "samples": client.batches.samples,
                "population": client.batches.population,
                "sha256": hashes[client.number],
            }
            for client, share in zip(one.clients, one.shares, strict=True)
        ],
        "rows": origin.rows,
        "rows_sha256": origin.rows_sha256,
        "pairing": origin.pairing,
        "measured": list(request.only),
        "top_k": request.top_k,
        "tol": request.tol,
        "probes": request.probes,
        "versions": dict(request.versions or {}),
    }
