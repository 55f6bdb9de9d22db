"""Records of runs for figures: metrics by round, and the curvature of the models that the run kept.

A record (``fedscope/run-curves/1``) is plain data, so that a figure can be drawn again without the registry.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedscope.errors import UserError

SCHEMA = "fedscope/run-curves/1"

Record = Mapping[str, Any]


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
