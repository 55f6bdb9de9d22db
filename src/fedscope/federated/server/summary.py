"""A run in a few numbers, as the papers print them: best, best of the first half, rounds to a target."""

import math
from collections.abc import Sequence
from typing import Any

from fedscope.checkpoints.file.schema import Round, Settings
from fedscope.checkpoints.registry.best import best, chosen_on
from fedscope.data.partition.shift import METRICS


def summary(settings: Settings, metrics: Sequence[Round]) -> dict[str, Any]:
    """Return what a table needs of a run's rounds, in order.

    ``accuracy`` after the last round; ``best_accuracy`` and ``best_half_accuracy`` (up to round ⌊T/2⌋; null
    if that is 0; Tian et al. 2022), of the round that was best on the split ``chosen_on``;
    ``rounds_to_target`` where a target is set, counted from 1, null while it was not reached;
    ``shift_accuracy`` under concept shift.
    """
    accuracies = [math.nan if one.accuracy is None else one.accuracy for one in metrics]
    top, by_half = best(metrics), best(metrics[: settings.rounds // 2])
    found: dict[str, Any] = {
        "accuracy": accuracies[-1],
        "best_accuracy": top and top.accuracy,
        "best_half_accuracy": by_half and by_half.accuracy,
        "chosen_on": chosen_on(settings.model_dump()),
        "rounds": len(accuracies),
    }
    if settings.target is not None:
        found["target"] = settings.target
        found["rounds_to_target"] = next(
            (number for number, a in enumerate(accuracies, 1) if a >= settings.target), None
        )
    if settings.shift != "none":
        shifts = [place for place, one in enumerate(metrics) if one.shifted]
        found["shift_accuracy"] = METRICS[settings.shift_metric](accuracies, shifts)
    return found
