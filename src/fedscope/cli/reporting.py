"""What `fedscope report` does: take the records that are there, measure what is missing, make the page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import describe_checkpoint, versions
from fedscope.checkpoints.registry.registry import Registry
from fedscope.checkpoints.registry.run import Run
from fedscope.cli import console, hessian_answers
from fedscope.cli.problems import problems, remarks
from fedscope.cli.rounds import parse
from fedscope.errors import UserError
from fedscope.figures.provenance import read_record
from fedscope.records.commands import registry_option
from fedscope.records.entries import Record
from fedscope.records.reading import read
from fedscope.records.schemas import HESSIAN_SCHEMA, LANDSCAPE_SCHEMA
from fedscope.report import report_page
from fedscope.storage import write_text
from fedscope.workflows.curvature.measure import measure
from fedscope.workflows.landscape.cached import kept_of, kept_scans
from fedscope.workflows.landscape.scan import Plane
from fedscope.workflows.requests import Crossing, Request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.run_clients import Participants

Earlier = Mapping[Path, Sequence[Path]]
"""Checkpoints, each with those of earlier rounds that lead to it."""


def run(
    lasting: bool,
    json_target: str | None,
    bn: Any,
    out: str,
    grid: int,
    span: float,
    top_k: int,
    probes: int | None,
    client_probes: int,
    no_clients: bool,
    rounds: str | None,
    no_compute: bool,
    files: tuple[Path, ...],
    **source: Any,
) -> None:
    """Measure what is missing, and write the page to ``out``.

    What is ``lasting`` is kept for `fedscope hessian`, too.
    """
    if Path(out).suffix.lower() != ".html":
        raise UserError(f"cannot write a report to '{out}': name it with the suffix .html")
    given = [record.to_json() for file in files for record in read(read_record(file), str(file))]
    store = Registry(source["registry"])
    references = source.pop("checkpoints") or (() if given else (store.newest().name,))
    request = Request(
        top_k=top_k,
        probes=probes,
        density=True,
        clients=not no_clients,
        crossing=Crossing(probes=client_probes),
        bn=bn,
        versions=versions(),
    )
    plane = Plane(grid=grid, span=span, bn=bn, versions=versions())
    paths = [store.resolve(reference) for reference in references]
    wanted = {
        path: kept_rounds(store, reference, rounds) for path, reference in zip(paths, references, strict=True)
    }
    asked = {**source, "bn": bn} if lasting else None
    records = (
        kept(store, wanted, given) if no_compute else measured(wanted, given, request, plane, source, asked)
    )
    only_json = console.in_json(json_target, records)
    page = page_of([as_record(run, paths) for run in runs_of(paths)], records)
    write_text(Path(out), page, below=None)
    if not only_json:
        print(out)


def measured(
    wanted: Earlier,
    given: Sequence[Record],
    request: Request,
    plane: Plane,
    source: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
) -> list[Record]:
    """Return ``given`` and what it lacks: curvature of checkpoints, landscapes of these and of earlier ones.

    The earlier rounds lie along the directions of the checkpoint that they lead to. What the curvature is
    about is kept, for requests of `fedscope hessian`, where the options ``asked`` say all of it.
    """
    keep = Registry(source["registry"]).analysis
    bases = {  # as the files are before they are read
        path: hessian_answers.bases(asked, path, clients=request.clients) for path in wanted if asked
    }
    targets = problems(tuple(map(str, wanted)), **source) if wanted else []
    records = list(given)
    for problem in targets:
        if not _has(records, HESSIAN_SCHEMA, problem.sha256):
            possible = _possible(request, problem)
            records.append(measure(problem, possible, console.progress, keep=keep, fuller=True))
            said = remarks([problem], source["samples"])
            hessian_answers.keep_bases(bases.get(problem.path, ()), records[-1], said)
    for problem, earlier in zip(targets, wanted.values(), strict=True):
        before = problems(tuple(map(str, earlier)), **source) if earlier else []
        distinct = {p.sha256: p for p in (problem, *before)}.values()
        missing = [p for p in distinct if not _has(records, LANDSCAPE_SCHEMA, p.sha256)]
        records += kept_scans(problem, missing, plane, console.progress, keep)
    return records


def kept(store: Registry, wanted: Earlier, given: Sequence[Record]) -> list[Record]:
    """Return ``given`` and, of what the registry has, the fullest record of each checkpoint that has none.

    Landscapes are of the checkpoints and of earlier ones, curvature of the checkpoints alone.
    """
    complete = [describe_checkpoint(path)[1] for path in wanted]
    every = [
        describe_checkpoint(path)[1] for target, earlier in wanted.items() for path in (target, *earlier)
    ]
    found = best_of(kept_of(store.analysis, every), complete)
    found.sort(key=lambda record: every.index(record["checkpoint"]["sha256"]))
    missing = [r for r in found if not _has(given, r["schema"], r["checkpoint"]["sha256"])]
    return [*given, *missing]


def best_of(records: Sequence[Record], complete: Sequence[str]) -> list[Record]:
    """Return of each checkpoint the fullest curvature record, and the finest landscape of each kind.

    Curvature is of the checkpoints with the hashes ``complete``, and of the Hessian by our own engine.
    """
    chosen: dict[tuple[object, ...], Record] = {}
    for record in records:
        sha256, problem = record["checkpoint"]["sha256"], record["problem"]
        kind = (record.get("directions"), len(record.get("axes", ())))
        if record["schema"] == HESSIAN_SCHEMA:
            usual = tuple(problem.get(key) for key in ("operator", "engine", "reading", "parameters"))
            if sha256 not in complete or usual != ("hessian", "fedscope", "paper", None):
                continue
        name = (record["schema"], sha256, *kind)
        if name not in chosen or _fullness(record, complete) > _fullness(chosen[name], complete):
            chosen[name] = record
    return list(chosen.values())


def kept_rounds(store: Registry, reference: str, rounds: str | None) -> list[Path]:
    """Return the kept global models of the rounds A, A+C, … up to B of ``A:B:C``; none without.

    Raises:
        UserError: ``rounds`` is not of that form, or the run kept none of them.
    """
    if rounds is None:
        return []
    wanted = parse(rounds)
    run = store.run(reference.partition("@")[0])
    found = [run.kept(round) for round in run.rounds() if round in wanted]
    if not found:
        names = ", ".join(map(str, run.rounds())) or "none; train with --keep-every"
        raise UserError(f"run {run.name!r} kept none of the rounds {rounds}; it has {names}")
    return found


def runs_of(paths: Sequence[Path]) -> list[Run]:
    """Return the runs that the checkpoints lie in, each once."""
    folders = [parent for path in paths for parent in path.absolute().parents]
    return [Run(folder) for folder in dict.fromkeys(folders) if layout.is_run(folder)]


def as_record(run: Run, paths: Sequence[Path] = ()) -> Record:
    """Return a run as the report takes it; of ``paths`` those in its folder are what was asked for."""
    files = [path for path in (run.best, run.final if run.final.exists() else run.last) if path.exists()]
    return {
        "manifest": run.manifest().model_dump(mode="json"),
        "metrics": run.metrics(),
        "checkpoints": {path.name: describe_checkpoint(path)[1] for path in files},
        "asked": [str(path) for path in paths if run.folder.absolute() in path.absolute().parents],
        "registry_option": registry_option(run.folder.parent),
    }


def page_of(runs: Sequence[Record], records: Sequence[Record]) -> str:
    """Return the HTML of runs and records of either schema."""
    curvatures = [record for record in records if record["schema"] == HESSIAN_SCHEMA]
    return report_page(runs, curvatures, [r for r in records if r["schema"] == LANDSCAPE_SCHEMA])


def _has(records: Sequence[Record], schema: str, sha256: str) -> bool:
    return any(r["schema"] == schema and r["checkpoint"]["sha256"] == sha256 for r in records)


def _possible(request: Request, problem: Problem) -> Request:
    """Return the request without the clients where they cannot be compared, which is said."""
    if not request.clients:
        return request
    options = request.crossing.settled(request.reading)
    assert options.weights
    assert options.data
    try:
        Participants(problem, options.weights, options.data)
    except UserError as reason:
        console.note(f"{problem.title}: no H_N and H_D: {reason}")
        return replace(request, clients=False)
    return request


def _fullness(record: Record, complete: Sequence[str]) -> tuple[Any, ...]:
    """Return what makes one of two records of the same the better one to show.

    An earlier round's landscape is comparable along the directions of the checkpoint that it leads to.
    """
    if record["schema"] == HESSIAN_SCHEMA:
        parts = bool(record["density"]) + bool(record["cross_client"])
        return parts, record["problem"]["samples"], len(record["eigenvalues"])
    sha256, lender = record["checkpoint"]["sha256"], record.get("directions_of") or record["checkpoint"]
    fitting = lender["sha256"] in complete if sha256 not in complete else lender["sha256"] == sha256
    return fitting, record["problem"]["samples"], len(record["axes"][0]["values"])
