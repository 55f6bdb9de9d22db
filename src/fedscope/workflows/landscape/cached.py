"""Landscapes as results in the registry, and all results of some checkpoints."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.surfaces.directions import random_directions
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.saved_records import Analysis
from fedscope.workflows.landscape.landscape_request import Plane
from fedscope.workflows.landscape.named_slices import slice_through
from fedscope.workflows.landscape.scan import SharedSlice, scan
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.result_cache import ResultCache, key
from fedscope.workflows.sources.problem import Problem


def cached_scans(
    center: Problem, problems: Sequence[Problem], plane: Plane, stage: Stage, keep: Path | None
) -> list[LandscapeRecord]:
    """Return the records of ``scan``, of each problem along the directions of ``center``, found once."""
    results, shared = ResultCache(keep), None
    records: list[LandscapeRecord] = []
    for problem in problems:
        name = _name(problem, plane, center.sha256)
        record = results.result(name)
        if not isinstance(record, LandscapeRecord):
            shared = shared or SharedSlice(slice_through(center, plane, stage, cache=results), center)
            record = scan(problem, plane, stage, shared=shared, keep=keep)
            results.finish(name, record)
        records.append(record.edited(checkpoint=problem.checkpoint))
    return records


def _name(problem: Problem, plane: Plane, lender: str) -> str:
    own = (problem.model, problem.loss_fn, problem.batches)
    loss = FlatLoss(*own, bn=plane.bn)
    question = {
        **asdict(plane),
        "versions": None,
        "schema": "landscape",
        "problem": problem.description,
        "directions_of": lender,
        # an operator does not tell apart losses that differ only far from the network
        "away": loss.value(loss.center + random_directions(problem.model).vectors[0]),
    }
    return key(Hessian(*own, bn=plane.bn), question)


def stored_records(keep: Path, hashes: Collection[str]) -> list[Analysis]:
    return [
        record
        for record in ResultCache(keep).results()
        if isinstance(record, HessianRecord | LandscapeRecord) and record.checkpoint.sha256 in hashes
    ]
