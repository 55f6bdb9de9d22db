"""Records of runs for figures: metrics by round, and the curvature of the models that the run kept.

A record (``fedscope/run-curves/1``) is plain data, so that a figure can be drawn again without the registry.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedscope.checkpoints.files import describe_checkpoint
from fedscope.checkpoints.registry import Registry
from fedscope.checkpoints.run import Run
from fedscope.errors import UserError
from fedscope.figures.commands import registry_option
from fedscope.figures.errors import error_of
from fedscope.storage import read_text

SCHEMA = "fedscope/run-curves/1"
ANALYSIS = ".analysis"  # in the registry: what `fedscope hessian` and `fedscope figures build` measured
OURS = {
    "operator": "hessian", "engine": "fedscope", "reading": "paper", "parameters": None,
    "split": "train", "bn": "eval",
}  # fmt: skip

Record = Mapping[str, Any]


def run_records(store: Registry, references: Sequence[str]) -> list[Record]:
    """Return a record for each reference: RUN, RUN@ROUND, RUN@all, with ``*`` and ``?`` in RUN for several.

    The checkpoint that the reference names is the record's ``at``, and its round the last of the ``metrics``;
    ``curvature`` has what the registry holds of this checkpoint and of the rounds that the run kept, whatever
    command measured it.

    Raises:
        UserError: no such run or checkpoint, or a client's.
    """
    found = [one for reference in references for one in _matches(store, reference)]
    curvatures = list(_curvatures(store.root / ANALYSIS))
    return [_record(store, reference, curvatures) for reference in dict.fromkeys(found)]


def _matches(store: Registry, reference: str) -> list[str]:
    name, mark, which = reference.partition("@")
    if not set(name) & set("*?"):
        return [reference]
    runs = [run.name for run in store.folders() if fnmatchcase(run.name, name)]
    if not runs:
        raise UserError(
            f"no run in the registry {store.root} is named like {name!r}; see 'fedscope runs list'"
        )
    return [f"{run}{mark}{which}" for run in runs]


def _record(store: Registry, reference: str, curvatures: Sequence[Record]) -> Record:
    run = store.run(reference.partition("@")[0])
    info, sha256 = describe_checkpoint(store.resolve(reference))
    if info.kind == "client":
        raise UserError(f"{reference} is the model of a client; give the run, RUN@ROUND or RUN@all")
    manifest = run.manifest()
    metrics = [line for line in run.metrics() if int(str(line["round"])) <= info.round]
    settings = manifest.settings.model_dump(mode="json")
    traffic = [
        float(str(line.get("bytes_down", 0))) + float(str(line.get("bytes_up", 0))) for line in metrics
    ]
    hashes = _hashes(store, run, reference)
    return {
        "schema": SCHEMA,
        "run": run.name,
        "registry_option": registry_option(store.root),
        "method": settings.pop("method"),
        "seed": settings.pop("seed"),
        "settings": {name: value for name, value in settings.items() if name not in _BESIDE},
        "dataset": manifest.data.name,
        "test_samples": manifest.data.test_samples,
        "at": {
            "round": info.round,
            "average": info.average,
            "sha256": sha256,
            "accuracy": _accuracy(metrics, info.round, info.average),
        },
        "metrics": {
            "round": [line["round"] for line in metrics],
            **{name: [line.get(name) for line in metrics] for name in ("accuracy", "loss", "train_loss")},
            "bytes": list(accumulate(traffic)),
        },
        "curvature": [
            {
                "sha256": record["checkpoint"]["sha256"],
                **hashes[record["checkpoint"]["sha256"]],
                **_kept(record),
            }
            for record in curvatures
            if record["checkpoint"]["sha256"] in hashes
        ],
        "versions": manifest.versions,
    }


def _accuracy(metrics: Sequence[Record], round: int, average: str) -> float | None:
    """Return the test accuracy of one of the global models of a round, where the metrics have it."""
    line = next((line for line in metrics if line["round"] == round), {})
    found: float | None = line.get("accuracies", {}).get(average, line.get("accuracy"))
    return found


_BESIDE = ("device", "threads", "stack", "compile", "save_clients", "keep_every", "target")


def _hashes(store: Registry, run: Run, reference: str) -> dict[str, Record]:
    """Return round and average of the run's kept global models and of the one named, by content hash."""
    paths = [*map(run.kept, run.rounds()), store.resolve(run.name), store.resolve(reference)]
    found: dict[str, Record] = {}
    for path in paths:
        info, sha256 = describe_checkpoint(path)
        found[sha256] = {"round": info.round, "average": info.average}
    return found


def _curvatures(folder: Path) -> Iterator[Record]:
    """Yield the Hessian records of our own estimators below ``folder`` that can be read."""
    for path in sorted(folder.rglob("*.json")):
        try:
            record = json.loads(read_text(path))["record"]
            usual = {name: record["problem"].get(name) for name in OURS}
            if record["schema"] == "fedscope/hessian/1" and usual == OURS:
                yield record
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue


def _kept(record: Record) -> Record:
    trace = record["trace"]
    return {
        "samples": record["problem"]["samples"],
        "lambda_max": _estimate(record["lambda_max"], "stderr_data"),
        "trace": None if trace is None else _estimate(trace, "stderr_probe", "stderr_data"),
        "layers": [
            {"name": layer["name"], **_estimate(layer, "stderr_data")} for layer in record.get("layers") or ()
        ],
    }


def _estimate(entry: Record, *errors: str) -> dict[str, float | None]:
    """Return value, standard error of all ``errors`` and its degrees of freedom; null where unknown."""
    known = None if None in map(entry.get, errors) else error_of(entry)
    stderr, dof = known or (None, None)
    return {"value": entry["value"], "stderr": stderr, "dof": dof if dof and math.isfinite(dof) else None}


def made_from(records: Sequence[Record]) -> dict[str, Any]:
    """Return the record of a figure that shows these runs: which they are, at which checkpoints."""
    return {
        "checkpoints": [record["at"]["sha256"] for record in records],
        "runs": [
            {name: record[name] for name in ("run", "method", "seed", "at", "versions")} for record in records
        ],
    }


def checked(records: Sequence[Record]) -> list[Record]:
    """Return records that were read from files.

    Raises:
        UserError: one is of another kind.
    """
    for record in records:
        if record["schema"] != SCHEMA:
            raise UserError(
                f"a record of {record['schema']} is none of runs; give what 'fedscope plot-runs --json' wrote"
            )
    return list(records)


def accuracy_at(record: Record) -> tuple[float, float]:
    """Return the test accuracy of the record's checkpoint and its standard error, both in [0, 1].

    The error is that of a share of ``test_samples`` independent samples.

    Raises:
        UserError: the metrics do not have it.
    """
    value = record["at"]["accuracy"]
    if value is None:
        raise UserError(f"the metrics of {name_of(record)} have no accuracy: its network was not evaluated")
    return value, math.sqrt(value * (1 - value) / record["test_samples"])


def gap_at(record: Record) -> float:
    """Return the test loss of the record's checkpoint less the training loss of its round's clients.

    Raises:
        UserError: the metrics lack one of them.
    """
    line, counts = _line(record), record["settings"].get("eval_model", "cld")
    test, train = record["metrics"]["loss"][line], record["metrics"]["train_loss"][line]
    if record["at"]["average"] != counts:
        raise UserError(
            f"the metrics of {record['run']} have the test loss of its model '{counts}' alone: "
            f"give {record['run']}@{counts}"
        )
    if test is None or train is None:
        raise UserError(f"the metrics of {name_of(record)} have no finite training and test loss")
    return float(test - train)


def curvature_at(records: Sequence[Record]) -> tuple[int, list[Record]]:
    """Return a number of samples, and the curvature of each record's checkpoint measured on as many.

    λ_max is biased upward on few samples, so that numbers from different ones are never put side by side: of
    the numbers that all records have, it is the largest.

    Raises:
        UserError: there is no such number.
    """
    found = [
        {one["samples"]: one for one in record["curvature"] if one["sha256"] == record["at"]["sha256"]}
        for record in records
    ]
    shared = set.intersection(*map(set, found))
    if not shared:
        lacking = next((r for r, one in zip(records, found, strict=True) if not one), None)
        which = (
            "the checkpoints are measured on different numbers of samples"
            if lacking is None
            else (f"the curvature of {name_of(lacking)} is not measured")
        )
        names = " ".join(map(name_of, records if lacking is None else [lacking]))
        raise UserError(
            f"{which}: 'fedscope hessian {names} --samples 1024{records[0].get('registry_option', '')}' "
            "measures it"
        )
    samples = max(shared)
    return samples, [one[samples] for one in found]


def curvature_rounds(record: Record) -> tuple[int, list[Record]]:
    """Return a number of samples, and the curvature by round of the server's models measured on as many.

    Of several numbers the one with the most rounds, and then the largest.

    Raises:
        UserError: fewer than two rounds are measured.
    """
    by_samples: dict[int, dict[int, Record]] = {}
    for one in record["curvature"]:
        if one["average"] == record["at"]["average"]:
            by_samples.setdefault(one["samples"], {})[one["round"]] = one
    samples, found = max(
        by_samples.items(), key=lambda item: (len(item[1]), item[0]), default=(0, dict[int, Record]())
    )
    if len(found) < 2:
        raise UserError(
            f"the curvature of fewer than two rounds of {record['run']} is measured: "
            f"train with --keep-every N, then 'fedscope hessian {record['run']}@N {record['run']}@2N …"
            f"{record.get('registry_option', '')}'"
        )
    return samples, [found[round] for round in sorted(found)]


def _line(record: Record) -> int:
    rounds = record["metrics"]["round"]
    if record["at"]["round"] not in rounds:
        raise UserError(
            f"the metrics of {record['run']} have no round {record['at']['round']}; "
            "a run from elsewhere has none"
        )
    return int(rounds.index(record["at"]["round"]))


def name_of(record: Record) -> str:
    """Return what names a record's checkpoint on the command line: RUN@ROUND, RUN@all."""
    average, round = record["at"]["average"], record["at"]["round"]
    return f"{record['run']}@{round if average == 'cld' else average}"
