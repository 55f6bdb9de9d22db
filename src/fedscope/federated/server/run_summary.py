"""A run in a few numbers, as the papers print them: best, best of the first half, rounds to a target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.best import best, chosen_on
from fedscope.data.partition.shift import METRICS


@dataclass(frozen=True)
class RunSummary:
    """A run's rounds in the numbers of a table; accuracies are shares."""

    accuracy: float | None  # after the last round; None where the task has no classes
    best_accuracy: float | None  # of the round that was best on the split ``chosen_on``
    best_half_accuracy: float | None  # of the best round up to ⌊T/2⌋; None if that is 0 (Tian et al. 2022)
    chosen_on: str | None
    rounds: int
    target: float | None = None
    rounds_to_target: int | None = None  # counted from 1; None without a target, or while it is not reached
    shift_accuracy: float | None = None  # under concept shift
    loss: float | None = None  # of the test samples, after the last round


def summary(settings: Settings, metrics: Sequence[Round]) -> RunSummary:
    accuracies = [math.nan if one.accuracy is None else one.accuracy for one in metrics]
    top, by_half = best(metrics), best(metrics[: settings.rounds // 2])
    target, shift = settings.target, None
    reached = (number for number, a in enumerate(accuracies, 1) if target is not None and a >= target)
    if settings.shift != "none":
        shifts = [place for place, one in enumerate(metrics) if one.shifted]
        shift = METRICS[settings.shift_metric](accuracies, shifts)
    return RunSummary(
        accuracy=metrics[-1].accuracy,
        best_accuracy=top.accuracy if top else None,
        best_half_accuracy=by_half.accuracy if by_half else None,
        chosen_on=chosen_on(settings.model_dump()),
        rounds=len(accuracies),
        target=target,
        rounds_to_target=next(reached, None),
        shift_accuracy=shift,
        loss=metrics[-1].loss,
    )
