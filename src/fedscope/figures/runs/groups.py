"""Runs that differ in nothing but their seed, as one line or point: the mean over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedscope.errors import UserError
from fedscope.figures.half_intervals import reach_over_seeds
from fedscope.figures.panels import Line, Values
from fedscope.figures.text.labels import family, method_name
from fedscope.records.run_curves import RunCurves


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one name that differ in their seed."""

    name: str
    family: str
    records: Sequence[RunCurves]


def groups(records: Sequence[RunCurves]) -> list[SeedGroup]:
    """Return the runs grouped by everything but the seed, named by method where each has its own.

    Of two runs after the same round it does not count how many rounds each was to have.
    """
    found: dict[str, list[RunCurves]] = {}
    for record in records:
        trained = {name: value for name, value in record.settings.items() if name != "rounds"}
        key = (record.method, record.dataset, trained, record.at.round, record.at.average)
        found.setdefault(repr(key), []).append(record)
    methods = [method_name(own[0].method) for own in found.values()]
    names = methods if len(set(methods)) == len(methods) else [own[0].run for own in found.values()]
    every = [
        SeedGroup(name, family(name, names), own) for name, own in zip(names, found.values(), strict=True)
    ]
    families = [group.family or group.name for group in every]
    # a method that adds to another comes after it
    return sorted(every, key=lambda one: (families.index(one.family or one.name), one.name != one.family))


def accuracy_line(group: SeedGroup, x: Values) -> Line:
    values = 100 * np.array([cut(record, record.metrics.accuracy, group) for record in group.records])
    return Line(
        group.name, x, values.mean(0), percent_band(values), family=group.family, shaded=True
    ).connected


def percent_band(values: Values) -> Values | None:
    """Return how far the 95 % interval of a mean of percentages (seeds, m) reaches down and up, (2, m)."""
    half, mean = reach_over_seeds(values), values.mean(0)
    return None if half is None else np.minimum(half, [mean, 100 - mean])


def rounds_of(group: SeedGroup) -> Values:
    """Return the numbers of the rounds that all runs of a group have, (m,)."""
    return cut(group.records[0], group.records[0].metrics.round, group)


def cut(record: RunCurves, column: Sequence[float], group: SeedGroup) -> Values:
    """Return a column of the metrics, as far as all runs of the group go."""
    shortest = min(len(one.metrics.round) for one in group.records)
    if not shortest:
        raise UserError(f"{record.run} has no metrics by round: a run from elsewhere has none")
    return np.array(column[:shortest], dtype=np.float64)


def spread_of(found: Sequence[SeedGroup]) -> str:
    """Return in words what bands are; nothing where every group has one seed."""
    counts = sorted({len(group.records) for group in found})
    if counts == [1]:
        return ""
    return f"mean and its 95 % interval over {' or '.join(map(str, counts))} seeds"
