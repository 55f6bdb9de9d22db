"""Records of runs for figures, ``fedscope/run-curves/1``: metrics by round, and curvature of kept models."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from fedscope.checkpoints.file.checkpoint import describe_checkpoint
from fedscope.checkpoints.file.layout import ANALYSIS
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.commands import registry_option
from fedscope.records.entries import Record
from fedscope.records.estimates import Entry
from fedscope.records.hessian_record import HessianRecord, ProblemEntry
from fedscope.records.round_quantities import QUANTITIES
from fedscope.records.run_curves import SCHEMA, CurvatureEntry, RunCurves
from fedscope.records.saved_records import Kept, most_precise
from fedscope.workflows.results import result_cache


def run_records(store: RunRegistry, references: Sequence[str]) -> list[RunCurves]:
    """Return a record for each reference: RUN, RUN@ROUND, RUN@all; RUN may be a pattern with ``*?[``.

    The checkpoint that the reference names is the record's ``at``, and its round the last of the ``metrics``;
    ``curvature`` is of it and of the rounds that the run kept, whatever command measured it.
    """
    found = [one for reference in references for one in store.matching(reference)]
    curvatures = list(_curvatures(result_cache.results(store.root / ANALYSIS)))
    return [_record(store, reference, curvatures) for reference in dict.fromkeys(found)]


def runs_of(records: Sequence[ClientsRecord], registry: Path) -> list[RunCurves]:
    names = dict.fromkeys(record.checkpoint.run for record in records)
    return run_records(RunRegistry(registry), [name for name in names if name])


def _record(store: RunRegistry, reference: str, curvatures: Sequence[HessianRecord]) -> RunCurves:
    run = store.run(reference.partition("@")[0])
    info, sha256 = describe_checkpoint(store.resolve(reference))
    if info.kind == "client":
        raise UserError(f"{reference} is the model of a client; give the run, RUN@ROUND or RUN@all")
    manifest = run.manifest()
    metrics = [line for line in run.metrics() if line.round <= info.round]
    settings = manifest.settings.model_dump(mode="json")
    traffic = [float(line.bytes_down + line.bytes_up) for line in metrics]
    content = {
        "schema": SCHEMA,
        "run": run.name,
        "registry_option": registry_option(store.root),
        "method": settings.pop("method"),
        "seed": settings.pop("seed"),
        "settings": {name: value for name, value in settings.items() if name not in _BESIDE},
        "dataset": manifest.data.name,
        "test_samples": None if any(one.domains for one in metrics[-1:]) else manifest.data.test_samples,
        "at": {
            "round": info.round,
            "average": info.average,
            "sha256": sha256,
            "accuracy": _accuracy(metrics, info.round, info.average),
        },
        "metrics": {
            "round": [line.round for line in metrics],
            "accuracy": [line.accuracy for line in metrics],
            "loss": [line.loss for line in metrics],
            "train_loss": [line.train_loss for line in metrics],
            "bytes": list(accumulate(traffic)),
            "lr": [line.lr for line in metrics],
            "diagnostics": _diagnostics(metrics),
        },
        "curvature": _of_models(curvatures, _hashes(store, run, reference)),
        "versions": manifest.versions,
    }
    return RunCurves.read(content)


def measured_rounds(run: RunFolder, results: Iterable[Kept]) -> tuple[CurvatureEntry, ...]:
    return tuple(map(CurvatureEntry.read, _of_models(_curvatures(results), _described(_kept(run)))))


def measured_clients(run: RunFolder, results: Iterable[Kept]) -> tuple[ClientsRecord, ...]:
    models = _described(_kept(run))
    return tuple(one for one in results if isinstance(one, ClientsRecord) and one.checkpoint.sha256 in models)


def _kept(run: RunFolder) -> list[Path]:
    kept = [*map(run.after_round, run.rounds()), run.newest]
    return [path for path in kept if path.exists()]


def _of_models(curvatures: Iterable[HessianRecord], models: Mapping[str, Record]) -> list[Record]:
    found: dict[tuple[str, int], list[HessianRecord]] = {}
    for record in curvatures:
        if (sha256 := record.checkpoint.sha256) in models:
            found.setdefault((sha256, record.problem.samples), []).append(record)
    return [
        {"sha256": sha256, **models[sha256], **_curvature(most_precise(records))}
        for (sha256, _), records in found.items()
    ]


def _diagnostics(metrics: Sequence[Round]) -> dict[str, list[float | None]]:
    columns = {one.name: [one.at(line) for line in metrics] for one in QUANTITIES}
    columns |= {one.error_name: [one.error_at(line) for line in metrics] for one in QUANTITIES}
    return {name: column for name, column in columns.items() if any(value is not None for value in column)}


def _accuracy(metrics: Sequence[Round], round: int, average: str) -> float | None:
    line = next((line for line in metrics if line.round == round), None)
    return None if line is None else line.accuracies.get(average, line.accuracy)


_BESIDE = (
    "device", "threads", "stack", "compile", "save_clients", "keep_every", "keep_steps", "target",
    "probe_curvature", "probe_samples",
)  # fmt: skip


def _hashes(store: RunRegistry, run: RunFolder, reference: str) -> dict[str, Record]:
    named = store.resolve(reference)
    models = _described([*map(run.after_round, run.rounds()), store.resolve(run.name), named])
    until = describe_checkpoint(named)[0].round
    return {sha256: model for sha256, model in models.items() if model["round"] <= until}


def _described(paths: Sequence[Path]) -> dict[str, Record]:
    found = [describe_checkpoint(path) for path in paths]
    return {sha256: {"round": info.round, "average": info.average} for info, sha256 in found}


def _curvatures(results: Iterable[Kept]) -> Iterator[HessianRecord]:
    for record in results:
        if isinstance(record, HessianRecord) and _is_usual(record.problem):
            yield record


def _is_usual(problem: ProblemEntry) -> bool:
    return problem.is_usual and (problem.split, problem.bn) == ("train", "eval")


def _curvature(record: HessianRecord) -> Record:
    top, trace, adaptive = record.lambda_max, record.trace, record.preconditioned
    stable = adaptive and _estimate(
        adaptive.lambda_max, adaptive.lambda_max.stderr_data, unit=adaptive.stable
    )
    return {
        "samples": record.problem.samples,
        "lambda_max": _estimate(top, top.stderr_data),
        "trace": trace and _estimate(trace, trace.stderr_probe, trace.stderr_data),
        **({"preconditioned": stable} if stable else {}),
        "layers": [{"name": layer.name, **_estimate(layer, layer.stderr_data)} for layer in record.layers],
    }


def _estimate(entry: Entry, *stderrs: float, unit: float = 1.0) -> dict[str, float | None]:
    """Return value and error of all ``stderrs`` in ``unit``, its degrees of freedom; null where unknown."""
    known = None if any(map(math.isnan, stderrs)) else entry.error
    stderr, dof = known or (None, None)
    return {
        "value": None if math.isnan(entry.value) else entry.value / unit,
        "stderr": None if stderr is None else stderr / unit,
        "dof": dof if dof and math.isfinite(dof) else None,
    }
