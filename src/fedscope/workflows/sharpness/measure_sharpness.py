"""One checkpoint, and every quantity of a request, in the record that `fedscope sharpness --json` prints.

Every quantity is kept under its own key, so that a later request measures only what is not there.
"""

import time
from dataclasses import replace
from typing import Any

import torch

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import BatchNormMode
from fedscope.errors import UserError
from fedscope.figures.text.sharpness_tables import SYMBOLS
from fedscope.landscape.loss.batches import Batches
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.mean_loss import is_mean
from fedscope.landscape.operators.finite_checks import check_finite
from fedscope.landscape.operators.hessian_operator import Hessian
from fedscope.landscape.sharpness.perturbed_loss import Perturbed, error_rate
from fedscope.records.entries import Record, finite
from fedscope.records.number_types import or_null
from fedscope.records.sharpness_record import SHARPNESS_SCHEMA, SharpnessRecord
from fedscope.statistics.standard_errors import combined, data_stderr, drawn_stderr, finite_population
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.results.result_cache import key
from fedscope.workflows.sharpness.quantities import Quantities
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest, check_request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets
from fedscope.workflows.study import ALONE, Session


def sharpness(
    targets: Targets, request: SharpnessRequest, reporter: Reporter = SILENT, *, again: bool = False
) -> list[SharpnessRecord]:
    """Measure each checkpoint on the same samples and draws, or take what the registry's results have."""
    check_request(request)  # before anything is read
    request = replace(request, versions=request.versions or versions())
    session = Session.of(targets.registry, reporter, again=again)
    found = problems(targets, reporter)
    tests = tested(found, targets) if request.gap else [None] * len(found)
    return [measure(problem, request, session, test=test) for problem, test in zip(found, tests, strict=True)]


def tested(found: list[Problem], targets: Targets) -> list[Problem | None]:
    """Return each run's checkpoint on the test split, on as many samples; None for a network without one."""
    if targets.split == "test":
        return [None] * len(found)
    paths = tuple(str(problem.path) for problem in found if problem.info)
    if not paths:
        return [None] * len(found)
    made = iter(problems(replace(targets, split="test", checkpoints=paths)))
    return [next(made) if problem.info else None for problem in found]


BATCHES = 16  # that tell the data's errors


def measure(
    problem: Problem,
    request: SharpnessRequest,
    session: Session = ALONE,
    *,
    test: Problem | None = None,
) -> SharpnessRecord:
    """Return the record of schema ``fedscope/sharpness/1``.

    Quantities that no one named and that the network does not have (without a linear layer, or by a loss that
    is no likelihood) are left out with a note. ``test`` is the same network on the test split, for the gap.
    """
    check_request(request)
    batches = _told_by(problem, request.bn)
    operator = Hessian(problem.model, problem.loss_fn, batches, bn=request.bn)
    check_finite(str(problem.path), problem.model, operator.loss)
    own, parts = Quantities(problem, batches, request), list[SharpnessRecord]()

    def kept(question: Record, made: dict[str, Any]) -> SharpnessRecord:
        def measured() -> SharpnessRecord:
            start = time.perf_counter()
            fields = {label: make() for label, make in made.items()}
            spent = time.perf_counter() - start
            return SharpnessRecord.read(_record(problem, request, fields, spent, operator.departs))

        name = key(operator, {**question, "problem": problem.description})
        return session.kept(name, SharpnessRecord, measured, reused=True)

    for name in request.names:
        with session.stage(f"{problem.title}: {SYMBOLS[name]}") as progress:
            try:
                question = {"quantity": name, **own.settings(name)}
                parts.append(
                    kept(question, {"quantities": lambda n=name, p=progress: [finite(own.entry(n, p))]})
                )
            except UserError as error:
                if request.only and "all" not in request.only:
                    raise
                session.reporter.note(f"{problem.title}: no {SYMBOLS[name]}: {error}")
    if request.gap and test is not None:
        question = {"quantity": "gap", "test": test.batches.sha256, "bn": request.bn}
        dealt = replace(problem, batches=batches), replace(test, batches=_told_by(test, request.bn))
        parts.append(kept(question, {"gap": lambda: finite(gap_entry(*dealt, request.bn))}))
    return _joined(problem, request, parts, operator.departs)


def _told_by(problem: Problem, bn: BatchNormMode) -> Batches:
    """Return the samples dealt to batches that tell errors; as they are where their loss is no mean."""
    if not is_mean(FlatLoss(problem.model, problem.loss_fn, problem.batches, bn=bn)):
        return problem.batches
    return problem.batches.dealt(BATCHES, problem.source.seed)


def _record(
    problem: Problem, request: SharpnessRequest, fields: dict[str, Any], seconds: float, departs: str
) -> Record:
    return {
        "schema": SHARPNESS_SCHEMA,
        "checkpoint": problem.checkpoint,
        "problem": problem.entry(bn=request.bn, departs=departs),
        "samples_sha256": problem.batches.sha256,
        "quantities": [],
        "gap": None,
        **fields,
        "seconds": seconds,
        "versions": dict(request.versions or {}),
        "reused": False,
    }


def _joined(
    problem: Problem, request: SharpnessRequest, parts: list[SharpnessRecord], departs: str
) -> SharpnessRecord:
    found = [one.to_json() for part in parts for one in part.quantities]
    gap = next((part.gap.to_json() for part in parts if part.gap), None)
    fields = {"quantities": found, "gap": gap}
    record = _record(problem, request, fields, sum(part.seconds for part in parts), departs)
    return SharpnessRecord.read({**record, "reused": bool(parts) and all(part.reused for part in parts)})


Level = tuple[float, tuple[float, float], float]  # loss, its (standard error, degrees of freedom), accuracy


def gap_entry(train: Problem, test: Problem, bn: BatchNormMode) -> Record:
    (loss, error, accuracy), (test_loss, test_error, test_accuracy) = _level(train, bn), _level(test, bn)
    stderr, dof = combined(error, test_error)
    return {
        "train_loss": loss,
        "test_loss": test_loss,
        "train_accuracy": accuracy,
        "test_accuracy": test_accuracy,
        "train_samples": train.batches.samples,
        "test_samples": test.batches.samples,
        "loss": test_loss - loss,
        "stderr": stderr,
        "dof": or_null(dof),
        "accuracy": accuracy - test_accuracy,
    }


def _level(problem: Problem, bn: BatchNormMode) -> Level:
    objective = Perturbed(problem.model, problem.loss_fn, problem.batches, bn=bn)
    nowhere = torch.zeros_like(objective.weights)
    losses, wrong = objective.values(nowhere), objective.values(nowhere, error_rate)
    factor = finite_population(problem.batches.samples, problem.batches.population)
    error = drawn_stderr(data_stderr(losses, objective.sizes), factor), len(objective.sizes) - 1
    return float(objective.mean(losses)), error, 1 - float(objective.mean(wrong))
