"""Records of runs for figures: metrics by round, and the curvature of the models that the run kept.

From a record (``fedscope/run-curves/1``) a figure can be drawn again without the registry.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from fedscope.errors import UserError
from fedscope.records.estimates import EstimateEntry
from fedscope.records.number_types import Count, Many, Number
from fedscope.records.saved_records import read_as
from fedscope.validation import Plain

SCHEMA = "fedscope/run-curves/1"


class CurveCheckpoint(Plain):
    """The checkpoint that a record is of."""

    round: Count  # rounds completed [rounds]
    average: str  # which of the global models
    sha256: str  # hash of the tensors
    accuracy: Number  # on the test split, in [0, 1]


class Metrics(Plain):
    """A run's metrics by round."""

    round: Many[Count]  # numbers of the rounds
    accuracy: Many[Number]  # on the test split, in [0, 1]
    loss: Many[Number]  # on the test split [loss]
    train_loss: Many[Number]  # of the round's clients, weighted by size [loss]
    bytes: Many[Number]  # sent by server and clients, up to each round [bytes]
    lr: Many[Number] = ()  # learning rate of the local steps
    # of the diagnostics, by name as in ``records.round_quantities``; without those that no round
    # has. ``trace_stderr`` is the standard error of ``trace``
    diagnostics: dict[str, Many[Number]] = Field(default_factory=dict)


class LayerEstimate(EstimateEntry):
    """λ_max of a layer's own block."""

    name: str  # of the layer


class CurvatureEntry(Plain):
    """What was measured of one of the models that the run kept."""

    sha256: str  # hash of the tensors
    round: Count  # rounds completed [rounds]
    average: str  # which of the global models
    samples: Count  # that were measured on [samples]
    lambda_max: EstimateEntry  # largest eigenvalue [loss/w²]
    trace: EstimateEntry | None  # trace [loss/w²]; None: not measured
    layers: Many[LayerEstimate]  # λ_max of each layer's own block
    # λ_max of P⁻¹H of an adaptive server, in units of the largest stable one; None: not measured
    preconditioned: EstimateEntry | None = None


class RunCurves(Plain):
    """A run: its metrics up to a checkpoint, and the curvature of the models that it kept."""

    schema_name: Literal["fedscope/run-curves/1"] = Field(alias="schema")  # name and version of this format
    run: str  # its name
    registry_option: str = ""  # what names its registry on the command line
    method: str  # that it was trained with
    seed: int  # of the training
    settings: dict[str, Any]  # all settings of the run; null for one that is not known
    dataset: str  # its name
    # that the accuracy is a share of; None: not known, or a mean over domains [samples]
    test_samples: Count | None
    at: CurveCheckpoint  # the checkpoint that the curves end at
    metrics: Metrics  # by round, up to it
    curvature: Many[CurvatureEntry]  # of the models that the run kept
    versions: dict[str, str]  # of fedscope and the packages that trained


def provenance(records: Sequence[RunCurves]) -> dict[str, Any]:
    """Return the JSON that a figure of these runs has in it: which they are, at which checkpoints."""
    return {
        "checkpoints": [record.at.sha256 for record in records],
        "runs": [
            {
                "run": record.run,
                "method": record.method,
                "seed": record.seed,
                "at": record.at.to_json(),
                "versions": record.versions,
            }
            for record in records
        ],
    }


def run_curves(contents: Sequence[Mapping[str, Any]]) -> list[RunCurves]:
    """Return records of ``fedscope plot-runs --json``."""
    return read_as(RunCurves, SCHEMA, "plot-runs", contents)


def accuracy_at(record: RunCurves) -> tuple[float, float]:
    """Return the test accuracy of the record's checkpoint and its standard error, both in [0, 1].

    The error is that of a share of ``test_samples`` independent samples; NaN where their number is not known.
    """
    value, samples = record.at.accuracy, record.test_samples
    if math.isnan(value):
        raise UserError(f"the metrics of {name_of(record)} have no accuracy: its network was not evaluated")
    return value, math.sqrt(value * (1 - value) / samples) if samples else math.nan


def gap_at(record: RunCurves) -> float:
    """Return the test loss of the record's checkpoint less the training loss of its round's clients."""
    line, counts = _line(record), record.settings.get("eval_model", "cld")
    gap = record.metrics.loss[line] - record.metrics.train_loss[line]
    if record.at.average != counts:
        raise UserError(
            f"the metrics of {record.run} have the test loss of its model '{counts}' alone: "
            f"give {record.run}@{counts}"
        )
    if math.isnan(gap):
        raise UserError(f"the metrics of {name_of(record)} have no finite training and test loss")
    return gap


def curvature_at(records: Sequence[RunCurves]) -> tuple[int, list[CurvatureEntry]]:
    """Return a number of samples, and the curvature of each record's checkpoint measured on as many.

    λ_max is biased upward on few samples, so that numbers from different ones are never put side by side: of
    the numbers that all records have, it is the largest.
    """
    found = [
        {one.samples: one for one in record.curvature if one.sha256 == record.at.sha256} for record in records
    ]
    shared = set.intersection(*map(set, found))
    if not shared:
        lacking = [record for record, one in zip(records, found, strict=True) if not one][:1]
        names = " ".join(map(name_of, lacking or records))
        fault = f"the curvature of {names} is not measured"
        if not lacking:
            fault = "the checkpoints are measured on different numbers of samples"
        raise UserError(
            f"{fault}: 'fedscope hessian {names} --samples 1024{records[0].registry_option}' measures it"
        )
    samples = max(shared)
    return samples, [one[samples] for one in found]


def curvature_rounds(record: RunCurves) -> tuple[int, list[CurvatureEntry]]:
    """Return :func:`most_rounds` of the model that the record is of."""
    samples, found = most_rounds(record.curvature, record.at.average)
    if len(found) < 2:
        raise UserError(
            f"the curvature of fewer than two rounds of {record.run} is measured: "
            f"train with --keep-every N, then 'fedscope hessian {record.run}@N {record.run}@2N …"
            f"{record.registry_option}'"
        )
    return samples, found


def most_rounds(
    curvature: Sequence[CurvatureEntry], average: str = "cld"
) -> tuple[int, list[CurvatureEntry]]:
    """Return a number of samples, and one kind of a run's models measured on as many, by round.

    Of several numbers the one with the most rounds, and then the largest.
    """
    by_samples: dict[int, dict[int, CurvatureEntry]] = {}
    for one in curvature:
        if one.average == average:
            by_samples.setdefault(one.samples, {})[one.round] = one
    samples, found = max(
        by_samples.items(), key=lambda item: (len(item[1]), item[0]), default=(0, dict[int, CurvatureEntry]())
    )
    return samples, [found[round] for round in sorted(found)]


def _line(record: RunCurves) -> int:
    if record.at.round not in record.metrics.round:
        raise UserError(
            f"the metrics of {record.run} have no round {record.at.round}; a run from elsewhere has none"
        )
    return record.metrics.round.index(record.at.round)


def name_of(record: RunCurves) -> str:
    """Return what names a record's checkpoint on the command line: RUN@ROUND, RUN@all."""
    return f"{record.run}@{record.at.round if record.at.average == 'cld' else record.at.average}"
