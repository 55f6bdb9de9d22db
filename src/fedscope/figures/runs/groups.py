"""Runs that differ in nothing but their seed, as one line or point; lines over the rounds, many in groups."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.page import MOST_KEYS, panels_figure
from fedscope.figures.panels import Line, Panel, Values, reach_over_seeds
from fedscope.figures.text.labels import family, method_name
from fedscope.records.run_curves import RunCurves

MOST_LINES = 12  # of one length that one pair of axes shows
GROUPS = 3  # that more are drawn in
BEHIND = {"color": "0.87", "linewidth": 0.6}


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


def rounds_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw lines over the rounds that all share, and beside them whole those that are longer.

    More than a pair of axes can show are drawn in panels side by side by their last value, the highest first.
    """
    ends = {line.label: line.x[-1] for line in lines if len(line.x)}  # a line may have no value at all
    shared = min(ends.values(), default=0.0)
    longer = [line for line in lines if ends.get(line.label, 0.0) > shared]
    if not longer and len(lines) <= MOST_LINES:
        return panels_figure([Panel(lines, "round", y_label)], title=title, caption=caption)
    if not longer:
        panels = _grouped(lines, y_label)
        return panels_figure(
            panels,
            columns=len(panels),
            legend="each",
            title=title,
            caption=caption,
            width=style.DOUBLE_COLUMN,
        )
    cut = [line.where(line.x <= shared) for line in lines]
    panels = [
        Panel(cut, "round", y_label, f"all, to round {shared:.0f}"),
        Panel(longer, "round", y_label, f"those trained to round {max(ends.values()):.0f}"),
    ]
    return panels_figure(
        panels, columns=2, keys=MOST_KEYS, title=title, caption=caption, width=style.WIDE_COLUMN
    )


def _grouped(lines: Sequence[Line], y_label: str) -> list[Panel]:
    reference, *others = lines
    reference = replace(reference, look={"color": style.INK, "linestyle": "--"})
    ranked = sorted(others, key=_end, reverse=True)
    size = -(-len(ranked) // GROUPS)
    panels = []
    for first in range(0, len(ranked), size):
        group = ranked[first : first + size]
        own = [replace(line, look=style.curve_look(place)) for place, line in enumerate(group)]
        behind = [
            replace(line, band=None, label=f"_{line.label}", look=BEHIND)
            for line in others if line not in group
        ]  # fmt: skip
        panels.append(Panel([*behind, reference, *own], "round", y_label))
    return panels


def _end(line: Line) -> float:
    known = line.y[np.isfinite(line.y)]
    return float(known[-1]) if len(known) else -np.inf
