"""Landscapes kept in the registry as Hessian results are, and all that is kept of a checkpoint."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from fedscope.landscape.hessian import Hessian
from fedscope.landscape.keeping import Keeper, key
from fedscope.landscape.measure import Stage
from fedscope.landscape.problem import Problem
from fedscope.landscape.records import Record
from fedscope.landscape.scan import Plane, Shared, scan, sliced


def kept_scans(
    center: Problem, problems: Sequence[Problem], plane: Plane, stage: Stage, keep: Path | None
) -> list[Record]:
    """Return the records of ``scan``, of each problem along the directions of ``center``.

    A record is taken from ``keep`` where it is there; the directions are found when one is missing.
    """
    keeper, shared = Keeper(keep), None
    records = []
    for problem in problems:
        lender = None if problem.sha256 == center.sha256 else center.sha256
        name = _name(problem, plane, lender)
        record = keeper.result(name)
        if record is None:
            if lender and shared is None:
                shared = Shared(sliced(center, plane, stage, keeper=keeper), center.checkpoint)
            record = scan(problem, plane, stage, shared=shared if lender else None, keep=keep)
            keeper.finish(name, record)
        records.append({**record, "checkpoint": problem.checkpoint})
    return records


def _name(problem: Problem, plane: Plane, lender: str | None) -> str:
    operator = Hessian(problem.model, problem.loss_fn, problem.batches, bn=plane.bn)
    asked = {**asdict(plane), "versions": None, "schema": "landscape", "problem": problem.description}
    return key(operator, {**asked, "directions_of": lender} if lender else asked)


def kept_of(keep: Path, hashes: Collection[str]) -> list[Record]:
    """Return the results in ``keep`` of the checkpoints with these content hashes, whatever was asked."""
    found = Keeper(keep).results()
    return [record for record in found if record.get("checkpoint", {}).get("sha256") in hashes]
