"""The sharpness of the checkpoints that targets name: what `fedscope sharpness` measures, as a function."""

from dataclasses import replace

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.results.result_cache import ResultCache
from fedscope.workflows.sharpness.measure_sharpness import measure
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest, check_request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.targets import Targets


def sharpness(
    targets: Targets, request: SharpnessRequest, reporter: Reporter = SILENT, *, again: bool = False
) -> list[SharpnessRecord]:
    """Measure each checkpoint on the same samples and draws, or take what the registry's results have.

    Args:
        targets: the checkpoints and samples.
        request: what to measure, and with what.
        reporter: where progress and notes go.
        again: do not look for results.
    """
    check_request(request)  # before anything is read
    request = replace(request, versions=request.versions or versions())
    cache = ResultCache(RunRegistry(targets.registry).analysis)
    found = problems(targets, reporter)
    tests = tested(found, targets) if request.gap else [None] * len(found)
    return [
        measure(problem, request, reporter, test=test, keep=cache, again=again)
        for problem, test in zip(found, tests, strict=True)
    ]


def tested(found: list[Problem], targets: Targets) -> list[Problem | None]:
    """Return each run's checkpoint on the test split, on as many samples; None for a network without one."""
    if targets.split == "test":
        return [None] * len(found)
    paths = tuple(str(problem.path) for problem in found if problem.info)
    if not paths:
        return [None] * len(found)
    made = iter(problems(replace(targets, split="test", checkpoints=paths)))
    return [next(made) if problem.info else None for problem in found]
