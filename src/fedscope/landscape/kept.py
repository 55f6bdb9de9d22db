"""Landscapes kept in the registry as Hessian results are, and all that is kept of a checkpoint."""

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from fedscope.landscape.hessian import Hessian
from fedscope.landscape.keeping import Keeper, key
from fedscope.landscape.measure import Stage
from fedscope.landscape.problem import Problem
from fedscope.landscape.records import Record
from fedscope.landscape.scan import Plane, scan


def kept_scan(problem: Problem, plane: Plane, stage: Stage, keep: Path | None) -> Record:
    """Return the record of :func:`~fedscope.landscape.scan.scan`, from ``keep`` where it is there."""
    keeper = Keeper(keep)
    asked = {**asdict(plane), "versions": None, "schema": "landscape", "problem": problem.description}
    name = key(Hessian(problem.model, problem.loss_fn, problem.batches, bn=plane.bn), asked)
    record = keeper.result(name)
    if record is None:
        record, _ = scan(problem, plane, stage, keep=keep)
        keeper.finish(name, record)
    return {**record, "checkpoint": problem.checkpoint}


def kept_of(keep: Path, hashes: Collection[str]) -> list[Record]:
    """Return the results in ``keep`` of the checkpoints with these content hashes, whatever was asked."""
    found = Keeper(keep).results()
    return [record for record in found if record.get("checkpoint", {}).get("sha256") in hashes]
