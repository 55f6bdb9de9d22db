"""What is measured of a run's checkpoint, once: results are kept in the registry by content.

    REGISTRY/.analysis/KEY.json    named by the weights and what was asked, beside those of the commands

A result of `fedscope hessian` that holds what is asked for will do too. The clients' uploads, where they are
compared, are the bulk of a run: they may be deleted once they are measured. Those that are still there must
be the ones that were. The analysis' source does not name the results: an artefact of hours of products
outlives a change of the code that made it, and its record says which code that was.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint, versions
from fedscope.checkpoints.registry.run import Run
from fedscope.errors import UserError
from fedscope.landscape.operators.progress import Progress
from fedscope.records.hessian import HessianRecord
from fedscope.records.landscape import LandscapeRecord, ObjectiveRecord
from fedscope.records.reading import Kept
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.jobs import Log
from fedscope.reproduce.runs.objective import objective_surfaces
from fedscope.validation import Plain
from fedscope.workflows.curvature.measure import measure
from fedscope.workflows.landscape.named_slices import Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.progress import Stage
from fedscope.workflows.requests import CrossClientRequest, Request, Resampling
from fedscope.workflows.results.cache import ResultCache
from fedscope.workflows.results.lookup import Criteria, earlier, trimmed
from fedscope.workflows.sources.problem import Problem, load
from fedscope.workflows.sources.samples import MOST, Source

ANALYSIS = ".analysis"  # in the registry, shared with `fedscope hessian`


def key(path: Path, wanted: Measure) -> str:
    """Return the name of a result: the weights measured, and what was asked.

    Raises:
        UserError: a checkpoint cannot be read.
    """
    asked = json.dumps(asdict(wanted), sort_keys=True, default=str)
    return hashlib.sha256(f"{asked}{content(path)}".encode()).hexdigest()[:32]


def content(path: Path) -> str:
    """Return the hash of a checkpoint's weights.

    Raises:
        UserError: it cannot be read.
    """
    return _content(path, path.stat().st_mtime_ns)


@cache
def _content(path: Path, _written: int) -> str:
    return load_checkpoint(path).sha256


def kept(registry: Path, path: Path, wanted: Measure) -> Kept | None:
    """Return the result of a measure, if the registry has one that is whole and of these weights.

    Raises:
        UserError: a checkpoint cannot be read.
    """
    results = ResultCache(registry / ANALYSIS)
    record = results.result(key(path, wanted))
    if record is None:
        return _answer(results, path, wanted)
    cross = record.cross_client if isinstance(record, HessianRecord) else None
    compared = (cross and cross.uploads) or {}
    return record if uploads(path, wanted).items() <= compared.items() else None


def _answer(results: ResultCache, path: Path, wanted: Measure) -> HessianRecord | None:
    """Return what a result of another name says of a measure of curvature, if it has all of it."""
    if wanted.kind != "hessian" or wanted.reading == "code":
        return None
    manifest, request = Run(path.parent).manifest(), _request(wanted)
    available = manifest.settings.train_samples or manifest.data.train_samples or 0
    available -= manifest.rows.validation if manifest.rows else 0
    samples = min(wanted.samples or available, available)
    problem = {
        "dataset": manifest.data.name, "split": "train", "samples": samples, "seed": 0, "dtype": "float32",
        "batch_size": min(wanted.batch_size or MOST, samples), "bn": request.bn, "operator": request.operator,
        "parameters": None, "loss": None, "engine": request.engine, "reading": request.reading,
    }  # fmt: skip
    needed = Criteria(content(path), problem, None, uploads(path, wanted))
    best = earlier(results.results(needed.sha256), request, needed)
    return trimmed(best.record, request) if best and not best.missing else None


def uploads(path: Path, wanted: Measure) -> dict[str, str]:
    """Return the hashes of the uploads beside a checkpoint, where a measure compares them.

    Raises:
        UserError: one cannot be read.
    """
    return {file.name: content(file) for file in Run(path.parent).clients()} if wanted.clients else {}


def compute(
    path: Path, wanted: Measure, registry: Path, data_dir: Path | None, device: str, say: Log
) -> None:
    """Measure a checkpoint, and keep the result.

    Raises:
        UserError: its data cannot be had, or it does not fit what is asked.
    """
    source = Source(
        samples=wanted.samples, data_dir=data_dir, device=torch.device(device),
        batch_size=wanted.batch_size,
    )  # fmt: skip
    if wanted.reading == "code" and wanted.samples is None:
        source = Source(samples=wanted.batch_size or MOST, data_dir=data_dir, device=source.device)
    if why := why_not_measurable(wanted, path):
        raise UserError(why)
    (problem,) = load([path], source)
    keep, name = registry / ANALYSIS, key(path, wanted)
    if wanted.kind == "hessian":
        measure(problem, _request(wanted), _stage(say), keep=keep, name=name)
    else:
        ResultCache(keep).finish(name, _KINDS[wanted.kind](problem, wanted, _stage(say)))


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
        resampling=Resampling(
            batches=wanted.product_batches, batch_size=wanted.batch_size, samples=wanted.samples
        ),
        versions=versions(),
    )


def _landscape(problem: Problem, wanted: Measure, stage: Stage) -> LandscapeRecord:
    plane = Plane(grid=wanted.grid, span=wanted.span, tol=max(wanted.tol, 1e-2), versions=versions())
    return scan(problem, plane, stage)


def _objective(problem: Problem, wanted: Measure, stage: Stage) -> ObjectiveRecord:
    return objective_surfaces(problem, grid=wanted.grid, span=wanted.span, stage=stage)


_KINDS: dict[str, Callable[[Problem, Measure, Stage], Plain]] = {
    "landscape": _landscape,
    "objective": _objective,
}


def _stage(say: Log) -> Stage:
    @contextmanager
    def stage(title: str) -> Iterator[Progress]:
        say(title)
        yield lambda _done, _total=None, _text="", /: None

    return stage


def why_not_measurable(wanted: Measure, path: Path) -> str | None:
    """Return why a checkpoint cannot be measured so, None if it can: clients to compare must be beside it."""
    run = Run(path.parent)
    if not wanted.clients or len(run.clients()) > 1:
        return None
    why = "its clients' models were deleted" if run.manifest().clients_deleted else "it kept fewer than two"
    return f"the clients of {run.name} cannot be compared, {why}; delete the run, and it is trained anew"
