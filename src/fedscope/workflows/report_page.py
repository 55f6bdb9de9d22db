"""The report of runs: the records that are there, what is missing measured, and the page of all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, versions
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.finite_checks import check_finite
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.commands import registry_option
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis, Kept, Rank, Reported, rank
from fedscope.report import report_page
from fedscope.workflows.curvature.measure_curvature import compared_clients, measure
from fedscope.workflows.landscape.landscape_command import kept_scans, stored_records
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.results import result_cache
from fedscope.workflows.run_records import measured_clients, measured_rounds
from fedscope.workflows.sources.chosen_rounds import parse
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import at, checkpoint_path
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import Session

MOST = 5  # eigenvalues, where none were measured before
WithEarlier = Mapping[Path, Sequence[Path]]
"""Checkpoints, each with those of earlier rounds that lead to it."""


@dataclass(frozen=True)
class ReportRequest:
    """What a report shows."""

    targets: Targets
    grid: int = 21  # points along each axis of the landscapes
    span: float = 1.0
    top_k: int | None = None  # eigenvalues; None: those measured already, at most 5, or else 5
    probes: int | None = None  # of the trace; None: to 5 %
    client_probes: int = 16
    clients: bool = True
    rounds: str | None = None  # FIRST:LAST:STEP of which there are landscapes, too
    bn: BatchNormMode = "eval"
    compute: bool = True  # False: show what the registry has
    given: tuple[Reported, ...] = ()  # records that are shown whatever the registry has

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        return tuple(record for record in self.given if not isinstance(record, ClientsRecord))

    @property
    def rounds_given(self) -> tuple[ClientsRecord, ...]:
        return tuple(record for record in self.given if isinstance(record, ClientsRecord))

    @property
    def curvature(self) -> Request:
        return Request(
            top_k=self.top_k or MOST,
            as_kept=self.top_k is None,
            probes=self.probes,
            density=True,
            clients=self.clients,
            cross_client=CrossClientRequest(probes=self.client_probes),
            bn=self.bn,
            versions=versions(),
        )


def report(request: ReportRequest, reporter: Reporter = SILENT) -> tuple[str, list[Analysis]]:
    """Return the page of the checkpoints, HTML, and its records; without any given, of the newest run."""
    targets = request.targets
    store = RunRegistry(targets.registry)
    references = targets.checkpoints or (() if request.given else (store.newest().name,))
    paths = [checkpoint_path(targets, reference) for reference in references]
    checkpoints = {
        path: kept_rounds(store, reference, request.rounds)
        for path, reference in zip(paths, references, strict=True)
    }
    if request.compute:
        records = measured(checkpoints, request, reporter)
    else:
        records = known(store, checkpoints, request, reporter)
    return page_of(shown_runs(paths), records, rounds_of(store, paths, request.rounds_given)), records


def rounds_of(
    store: RunRegistry, checkpoints: Sequence[Path], given: Sequence[ClientsRecord] = ()
) -> list[ClientsRecord]:
    """Return ``given`` and, for each other checkpoint's round, the fullest record that the registry has."""
    hashes = [describe_checkpoint(path)[1] for path in checkpoints if layout.is_ours(path)]
    found: dict[str, ClientsRecord] = {}
    for record in result_cache.results(store.analysis):
        if isinstance(record, ClientsRecord) and (sha256 := record.checkpoint.sha256) in hashes:
            known = found.get(sha256)
            if known is None or _extent(record) >= _extent(known):
                found[sha256] = record
    shown = {record.checkpoint.sha256 for record in given}
    others = [found[sha256] for sha256 in dict.fromkeys(hashes) if sha256 in found and sha256 not in shown]
    return [*given, *others]


def _extent(record: ClientsRecord) -> Rank:
    return (len(record.measured), *rank(record))


def measured(checkpoints: WithEarlier, request: ReportRequest, reporter: Reporter) -> list[Analysis]:
    """Return the records given and what they lack: curvature, and landscapes of these and of earlier ones.

    The landscapes of earlier rounds lie along the directions of the checkpoint that they lead to.
    """
    targets, curvature = request.targets, request.curvature
    plane = Plane(grid=request.grid, span=request.span, bn=request.bn, versions=versions())
    session = Session.of(targets.registry, reporter)
    found = at(list(checkpoints), targets, reporter) if checkpoints else []
    _check_measurable(found, request)
    records: list[Analysis] = list(request.analyses)
    for problem in found:
        if not _has(records, HessianRecord, problem.sha256):
            possible = _possible(curvature, problem, reporter)
            records.append(measure(problem, possible, session, more_probes=True))
    for problem, earlier in zip(found, checkpoints.values(), strict=True):
        before = at(earlier, targets, reporter) if earlier else []
        distinct = {p.sha256: p for p in (problem, *before)}.values()
        missing = [p for p in distinct if not _has(records, LandscapeRecord, p.sha256)]
        records += kept_scans(problem, missing, plane, session)
    return records


def _check_measurable(found: Sequence[Problem], request: ReportRequest) -> None:
    for problem in found if len(found) > 1 else ():  # one alone is refused at once anyway
        loss = FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=request.bn)
        try:
            check_finite(str(problem.path), problem.model, loss)
        except UserError as reason:
            raise UserError(f"{reason}; --no-compute shows its training beside what is known") from reason


def known(
    store: RunRegistry, checkpoints: WithEarlier, request: ReportRequest, reporter: Reporter = SILENT
) -> list[Analysis]:
    """Return the records given and, for each checkpoint that has none there, the fullest of the registry."""
    given = request.analyses
    paths = dict.fromkeys(path for target, earlier in checkpoints.items() for path in (target, *earlier))
    own = [path for path in paths if not layout.is_ours(path)]
    hashes = {problem.path: problem.sha256 for problem in (at(own, request.targets, reporter) if own else ())}
    hashes |= {path: describe_checkpoint(path)[1] for path in paths if path not in hashes}
    complete, every = [hashes[path] for path in checkpoints], [hashes[path] for path in paths]
    found = best_of(stored_records(store.analysis, every), complete, request.targets.count)
    found.sort(key=lambda record: every.index(record.checkpoint.sha256))
    missing = [record for record in found if not _has(given, type(record), record.checkpoint.sha256)]
    return [*given, *missing]


def best_of(
    records: Sequence[Analysis], complete: Sequence[str], samples: int | None = None
) -> list[Analysis]:
    """Return of each checkpoint the fullest curvature record, and the finest landscape of each kind.

    Curvature is of the checkpoints with the hashes ``complete``, and by our own engine; of several as full it
    is by :func:`rank` for ``samples`` samples. Of several that are alike the last one counts.
    """
    curvatures: dict[str, HessianRecord] = {}
    landscapes: dict[tuple[str, str, int], LandscapeRecord] = {}
    for record in records:
        sha256, problem = record.checkpoint.sha256, record.problem
        if isinstance(record, LandscapeRecord):
            kind = (sha256, record.directions, len(record.axes))
            best = landscapes.get(kind)
            if best is None or _fineness(record, complete) >= _fineness(best, complete):  # the last measured
                landscapes[kind] = record
            continue
        if sha256 in complete and problem.is_usual:
            known = curvatures.get(sha256)
            if known is None or _fullness(record, samples) >= _fullness(known, samples):
                curvatures[sha256] = record
    return [*curvatures.values(), *landscapes.values()]


def kept_rounds(store: RunRegistry, reference: str, rounds: str | None) -> list[Path]:
    if rounds is None:
        return []
    wanted = parse(rounds)
    run = store.run(reference.partition("@")[0])
    found = [run.after_round(round) for round in run.rounds() if round in wanted]
    if not found:
        names = ", ".join(map(str, run.rounds())) or "none; train with --keep-every"
        raise UserError(f"run {run.name!r} kept none of the rounds {rounds}; it has {names}")
    return found


def shown_runs(paths: Sequence[Path]) -> list[RunRecord]:
    runs = [RunFolder(folder) for folder in dict.fromkeys(map(layout.run_of, paths)) if folder]
    results = {root: result_cache.results(root / layout.ANALYSIS) for root in {run.root for run in runs}}
    return [as_record(run, results[run.root], paths) for run in runs]


def as_record(run: RunFolder, results: Sequence[Kept] = (), paths: Sequence[Path] = ()) -> RunRecord:
    """Return a run, with what ``results`` have of it; of ``paths`` those in its folder were asked for."""
    files = [path for path in (run.best, run.newest) if path.exists()]
    return RunRecord(
        manifest=run.manifest(),
        metrics=tuple(run.metrics()),
        checkpoints={path.name: describe_checkpoint(path)[1] for path in files},
        asked=tuple(str(path) for path in paths if run.folder.absolute() in path.absolute().parents),
        curvature=measured_rounds(run, results),
        clients=measured_clients(run, results),
        registry_option=registry_option(run.folder.parent),
    )


def page_of(
    runs: Sequence[RunRecord], records: Sequence[Analysis], rounds: Sequence[ClientsRecord] = ()
) -> str:
    curvatures = [record for record in records if isinstance(record, HessianRecord)]
    landscapes = [record for record in records if isinstance(record, LandscapeRecord)]
    return report_page(runs, curvatures, landscapes, rounds)


def _has(records: Sequence[Analysis], kind: type[Analysis], sha256: str) -> bool:
    return any(isinstance(record, kind) and record.checkpoint.sha256 == sha256 for record in records)


def _possible(request: Request, problem: Problem, reporter: Reporter) -> Request:
    if problem.info is None:  # a network of the user's own has no clients
        return replace(request, clients=False)
    try:
        compared_clients(problem, request)
    except UserError as reason:
        reporter.note(f"{problem.title}: no H_N and H_D: {reason}")
        return replace(request, clients=False)
    return request


def _fullness(record: HessianRecord, samples: int | None) -> Rank:
    parts = (record.density is not None, record.cross_client is not None, len(record.eigenvalues) > 1)
    return (sum(parts), *rank(record, samples), len(record.eigenvalues))


def _fineness(record: LandscapeRecord, complete: Sequence[str]) -> tuple[int, ...]:
    """Return the rank; an earlier round's should lie along the directions of what it leads to."""
    sha256, lender = record.checkpoint.sha256, record.directions_of or record.checkpoint
    fitting = lender.sha256 in complete if sha256 not in complete else lender.sha256 == sha256
    return fitting, record.problem.samples, len(record.axes[0].values)
