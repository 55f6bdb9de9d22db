"""Measurements of a run's checkpoints, each made once: results are stored in the registry by content.

    REGISTRY/.analysis/KEY.json    named by weights and request, beside the results of the commands

A result of `fedscope hessian` that contains the requested quantities is used too. The clients' uploads, where
they are compared, are the bulk of a run: they may be deleted after they are measured. Uploads that are still
there must be those that were measured. So may a global checkpoint, whose hash its manifest keeps then. A
result's name does not depend on the analysis' source, so that an artefact of hours of products outlives a
change of the code; its record states the code.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, load_checkpoint, versions
from fedscope.checkpoints.file.layout import ANALYSIS
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.saved_records import Kept
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.computations import Log
from fedscope.reproduce.runs.measure_kinds import KINDS, with_term
from fedscope.workflows.curvature.measure_curvature import measure
from fedscope.workflows.progress import Reporter, Stage
from fedscope.workflows.requests import CrossClientRequest, Request, Resampling
from fedscope.workflows.results.result_cache import ResultCache
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import MOST, Source
from fedscope.workflows.study import Session


def key(path: Path, wanted: Measure) -> str:
    request = json.dumps(wanted.request(), sort_keys=True, default=str)
    return hashlib.sha256(f"{request}{content(path)}".encode()).hexdigest()[:32]


def run_of(path: Path) -> RunFolder:
    return RunFolder(layout.run_of(path) or path.parent)


def content(path: Path) -> str:
    """Return the hash of a checkpoint's weights, also of one that was deleted."""
    if not path.exists() and (known := deleted(path)):
        return known
    return _content(path, path.stat().st_mtime_ns)


def deleted(path: Path) -> str | None:
    """Return the hash of a checkpoint that was deleted from its run, if the run recorded it."""
    run = run_of(path)
    known = run.manifest().checkpoints_deleted
    return known.get(path.absolute().relative_to(run.folder.absolute()).as_posix())


@cache
def _content(path: Path, _written: int) -> str:
    return load_checkpoint(path).sha256


def cached_result(registry: Path, path: Path, wanted: Measure) -> Kept | None:
    """Return the result of a measure, if the registry has one that is whole and of these weights."""
    record = ResultCache(registry / ANALYSIS).result(key(path, wanted))
    same = record and uploads(path, wanted).items() <= _compared(record, run_of(path)).items()
    return record if same else None


def _compared(record: Kept, run: RunFolder) -> dict[str, str]:
    if isinstance(record, ClientsRecord):
        return {run.client(one.number).name: one.sha256 for one in record.clients}
    cross = record.cross_client if isinstance(record, HessianRecord) else None
    return dict((cross and cross.uploads) or {})


def uploads(path: Path, wanted: Measure) -> dict[str, str]:
    """Return the hashes of the uploads beside a checkpoint that a measure compares.

    What a round did is of the clients that took part in it, H_N and H_D are of each client's last upload.
    """
    files = run_of(path).clients() if wanted.uploads else []
    if wanted.kind == "clients" and files:
        round = describe_checkpoint(path)[0].round
        files = [file for file in files if describe_checkpoint(file)[0].round == round]
    return {file.name: content(file) for file in files}


def compute(
    path: Path, wanted: Measure, registry: Path, data_dir: Path | None, device: str, say: Log
) -> None:
    source = Source(
        samples=wanted.samples, data_dir=data_dir, device=torch.device(device),
        batch_size=wanted.batch_size, split=wanted.split, seed=wanted.draw, augment=wanted.augment,
        normalisation=wanted.normalisation,
    )  # fmt: skip
    if wanted.reading == "code" and wanted.samples is None:
        source = Source(samples=wanted.batch_size or MOST, data_dir=data_dir, device=source.device)
    if why := why_not_measurable(wanted, path):
        raise UserError(why)
    (problem,) = load([path], source)
    problem = with_term(problem) if wanted.term else problem
    session, name = Session(Reporter(_stage(say)), registry / ANALYSIS), key(path, wanted)
    if wanted.kind == "hessian":
        measure(problem, _request(wanted), session, name=name, more_probes=True)
    else:
        session.cache.finish(name, KINDS[wanted.kind](problem, wanted, Session(session.reporter)))


def _request(wanted: Measure) -> Request:
    return Request(
        top_k=wanted.top_k,
        tol=wanted.tol,
        probes=None if wanted.reading == "code" else wanted.probes,
        trace_rtol=wanted.trace_rtol,
        density=wanted.density,
        clients=wanted.clients,
        cross_client=CrossClientRequest(probes=wanted.client_probes),
        reading=wanted.reading,
        engine=wanted.engine,
        resampling=Resampling(
            batches=wanted.product_batches, batch_size=wanted.batch_size, samples=wanted.samples
        ),
        versions=versions(),
    )


def _stage(say: Log) -> Stage:
    @contextmanager
    def stage(title: str) -> Iterator[Progress]:
        say(title)
        yield lambda _done, _total=None, _text="", /: None

    return stage


def why_not_measurable(wanted: Measure, path: Path) -> str | None:
    """Return why a checkpoint cannot be measured, None if it can: clients to compare must be in its run."""
    run = run_of(path)
    if not wanted.uploads or len(run.clients()) > 1:
        return None
    why = "its clients' models were deleted" if run.manifest().clients_deleted else "it kept fewer than two"
    return f"the clients of {run.name} cannot be compared, {why}; delete the run, and it is trained anew"
