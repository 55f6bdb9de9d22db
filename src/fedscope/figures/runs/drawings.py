"""Runs as drawings: accuracy, diagnostics and sharpness by round, accuracy by traffic and by sharpness.

Built from the records of :mod:`fedscope.workflows.run_records`. Runs that differ in nothing but their seed
are one line or point: the mean over seeds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.intervals import reach
from fedscope.figures.runs.curves import Line, Panel, Values, panels_figure, rounds_figure
from fedscope.figures.runs.layers import layer_figure
from fedscope.figures.runs.tradeoff import Point, Reach, tradeoff_figure
from fedscope.figures.text.labels import data_name, family, method_name
from fedscope.records.estimates import Estimate
from fedscope.records.round_quantities import QUANTITIES, Family
from fedscope.records.run_curves import (
    Curvature,
    RunCurves,
    accuracy_at,
    curvature_at,
    curvature_rounds,
    gap_at,
    name_of,
)
from fedscope.records.stability import stable_under

Kind = Literal[
    "accuracy",
    "bytes",
    "rounds",
    "stability",
    "sharpness",
    "gap",
    "layers",
    "drift",
    "steps",
    "local",
    "probes",
]
UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
Pick = Callable[[Curvature], Estimate]
Unit = Callable[[RunCurves, int], float]
CURVATURE: Mapping[str, Pick] = {"λ_max": lambda one: one.lambda_max, "trace": lambda one: one.trace}
FLATTER = " (← flatter)"


@dataclass(frozen=True)
class Group:
    """Runs of one name that differ in their seed."""

    name: str
    family: str
    records: Sequence[RunCurves]


def draw(records: Sequence[RunCurves], kind: Kind, *, title: str = "") -> Figure:
    """Draw one kind of figure of several runs.

    ``accuracy``: test accuracy by round; ``bytes``: by the bytes that server and clients sent; ``rounds``:
    accuracy, λ_max and trace by round; ``stability``: λ_max by round in units of the largest that local steps
    are stable at; ``sharpness``: λ_max and trace against test accuracy; ``gap``: against
    test loss less training loss; ``layers``: λ_max of each layer's block; ``drift``, ``steps``, ``local`` and
    ``probes``: accuracy by round, and the quantities of that family of :mod:`.round_quantities`. ``title``
    stands above.

    Raises:
        UserError: no run, or one without what this kind shows.
    """
    if not records:
        raise UserError("there is no run to draw: give one, or --from a record")
    return _DRAWINGS[kind](groups(records), title)


def groups(records: Sequence[RunCurves]) -> list[Group]:
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
    every = [Group(name, family(name, names), own) for name, own in zip(names, found.values(), strict=True)]
    families = [group.family or group.name for group in every]
    # a method that adds to another comes after it
    return sorted(every, key=lambda one: (families.index(one.family or one.name), one.name != one.family))


def _accuracy(found: Sequence[Group], title: str) -> Figure:
    lines = [_line(group, _rounds(group)) for group in found]
    return rounds_figure(lines, y_label="test accuracy (%)", title=title, caption=_spread(found))


def _bytes(found: Sequence[Group], title: str) -> Figure:
    sent = [np.mean([_cut(r, r.metrics.bytes, group) for r in group.records], axis=0) for group in found]
    largest = max(float(values.max()) for values in sent)
    unit = next((name for name, size in UNITS.items() if largest >= size), "kB")
    if not largest:
        raise UserError(
            "the metrics of these runs have no bytes: a run from elsewhere, or of an older fedscope"
        )
    lines = [_line(group, values / UNITS[unit]) for group, values in zip(found, sent, strict=True)]
    axes = (f"sent by server and clients ({unit})", "test accuracy (%)")
    return panels_figure([Panel(lines, *axes)], title=title, caption=_spread(found))


def _by_round(found: Sequence[Group], title: str) -> Figure:
    panels = [_curvature_panel(found, name, pick) for name, pick in CURVATURE.items()]
    return _below_accuracy(found, panels, title)


def _stability(found: Sequence[Group], title: str) -> Figure:
    ratio = _curvature_panel(found, "λ_max / stable", lambda one: one.lambda_max, of=_stable)
    edge = Line("edge of stability", np.zeros(1), np.ones(1), level=True)
    return _below_accuracy(found, [Panel([*ratio.lines, edge], ratio.x_label, ratio.y_label)], title)


def _stable(record: RunCurves, round: int) -> float:
    rates = dict(zip(record.metrics.round, record.metrics.lr, strict=False))
    found = stable_under(record.settings, rates.get(round))
    if found is None:
        raise UserError(f"the learning rate of {record.run} is not known: a run from elsewhere has none")
    return found


def _below_accuracy(found: Sequence[Group], panels: Sequence[Panel], title: str) -> Figure:
    """Draw panels of curvature by round below one of the accuracy."""
    accuracy = Panel([_line(group, _rounds(group)) for group in found], "round", "test accuracy (%)")
    caption = f"curvature on {_samples(found):,} training samples, ± one standard error"
    notes = "; ".join(filter(None, [caption, _spread(found)]))
    return panels_figure([accuracy, *panels], title=title, caption=notes)


def _samples(found: Sequence[Group]) -> int:
    """Return the number of samples that all rounds are measured on."""
    samples = {curvature_rounds(record)[0] for group in found for record in group.records}
    if len(samples) > 1:
        numbers = ", ".join(f"{number:,}" for number in sorted(samples))
        raise UserError(f"the rounds are measured on {numbers} samples: measure all with one --samples")
    return samples.pop()


def _curvature_panel(found: Sequence[Group], name: str, pick: Pick, of: Unit = lambda *_: 1.0) -> Panel:
    return Panel([_curvature_line(group, pick, of) for group in found], "round", name)


def _curvature_line(group: Group, pick: Pick, of: Unit) -> Line:
    """Return a quantity by round, in units of ``of`` the run and the round."""
    measured = [curvature_rounds(record)[1] for record in group.records]
    shared = sorted(set.intersection(*({one.round for one in rounds} for rounds in measured)))
    rows = []
    for record, rounds in zip(group.records, measured, strict=True):
        units = [of(record, round) for round in shared]
        chosen = [pick(one) for one in rounds if one.round in shared]
        rows.append([(one.value / u, one.stderr / u) for one, u in zip(chosen, units, strict=True)])
    values = np.array(rows)
    error = values[..., 1][0] if len(values) == 1 else values[..., 0].std(0, ddof=1)
    return Line(group.name, np.array(shared, float), values[..., 0].mean(0), error, family=group.family)


def _diagnostics(kind: Family, found: Sequence[Group], title: str) -> Figure:
    panels = [Panel([_line(group, _rounds(group)) for group in found], "round", "test accuracy (%)")]
    for quantity in (one for one in QUANTITIES if one.family == kind):
        lines = [_recorded_line(group, quantity.name) for group in found]
        known = [line for line in lines if line]
        if known:
            panels.append(Panel(known, "round", quantity.axis))
    if len(panels) == 1:
        name = found[0].records[0].run
        mend = "train with --probe-curvature K" if kind == "probes" else "a run of an older fedscope has none"
        raise UserError(f"the metrics of {name} have nothing of --kind {kind}: {mend}")
    return panels_figure(panels, title=title, caption=_spread(found))


def _recorded_line(group: Group, name: str) -> Line | None:
    """Return a quantity's mean over seeds in the rounds in which all have it; None where there is none."""
    columns = [record.metrics.diagnostics.get(name, ()) for record in group.records]
    values = np.array([column[: min(map(len, columns))] for column in columns], dtype=np.float64)
    there = np.isfinite(values).sum(0) == len(values)
    if not there.any():
        return None
    rounds = np.array(group.records[0].metrics.round[: len(there)], dtype=np.float64)[there]
    values = values[:, there]
    band = values.std(0, ddof=1) if len(values) > 1 else None
    return Line(group.name, rounds, values.mean(0), band, family=group.family, shaded=True)


def _sharpness(found: Sequence[Group], title: str) -> Figure:
    heights = [
        [(100 * value, 100 * reach(error, math.inf)) for value, error in map(accuracy_at, group.records)]
        for group in found
    ]
    return _tradeoff(found, heights, "test accuracy (%)", title)


def _gap(found: Sequence[Group], title: str) -> Figure:
    heights = [[(gap_at(record), np.nan) for record in group.records] for group in found]
    return _tradeoff(found, heights, "test loss − training loss", title)


def _tradeoff(found: Sequence[Group], heights: Sequence[Sequence[Reach]], y_label: str, title: str) -> Figure:
    records = [record for group in found for record in group.records]
    samples, curvature = curvature_at(records)
    measured, points = iter(curvature), []
    for group, height in zip(found, heights, strict=True):
        own = [next(measured) for _ in group.records]
        across = {
            name + FLATTER: _mean(np.array([_reach(pick(one)) for one in own]))
            for name, pick in CURVATURE.items()
        }
        points.append(Point(group.name, across, _mean(np.array(height))))
    return tradeoff_figure(points, y_label=y_label, title=title, caption=_conditions(found, samples))


def _conditions(found: Sequence[Group], samples: int) -> str:
    records = [record for group in found for record in group.records]
    parts = [", ".join(dict.fromkeys(data_name(record.dataset) for record in records))]
    rounds = sorted({record.at.round for record in records})
    parts.append(f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}")
    parts.append(_seeds(found))
    bars = "bars: 95\N{NO-BREAK SPACE}% intervals"
    return f"{', '.join(parts)}; curvature on {samples:,} training samples; {bars}"


def _seeds(found: Sequence[Group]) -> str:
    """Return how many seeds each group has, in words."""
    counts = [len(group.records) for group in found]
    if len(set(counts)) == 1:
        return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
    most = [group.name for group, count in zip(found, counts, strict=True) if count == max(counts)]
    rest = "one" if sorted(set(counts))[:-1] == [1] else f"{min(counts)} or more"
    return f"{max(counts)} seeds of {' and '.join(most)}, {rest} of the others"


def _layers(found: Sequence[Group], title: str) -> Figure:
    records = [record for group in found for record in group.records]
    samples, curvature = curvature_at([_with_layers(record) for record in records])
    by_layer = [{layer.name: _reach(layer) for layer in one.layers} for one in curvature]
    names = list(dict.fromkeys(name for one in by_layer for name in one))
    values = np.array([[one.get(name, (math.nan, math.nan)) for name in names] for one in by_layer])
    return layer_figure(
        names,
        {group.name: values[place] for place, group in enumerate(found)},
        title=title,
        caption=_conditions(found, samples),
    )


def _with_layers(record: RunCurves) -> RunCurves:
    found = tuple(one for one in record.curvature if one.layers)
    if not found:
        raise UserError(
            f"λ_max by layer is not measured of {record.run}: 'fedscope hessian {name_of(record)} --layers"
            f"{record.registry_option}' does it"
        )
    return record.model_copy(update={"curvature": found})


def _mean(values: Values) -> Reach:
    """Return the mean over seeds of (n, 2) values and reaches, and half of its 95 % interval."""
    if len(values) == 1:
        return float(values[0, 0]), float(values[0, 1])
    spread = values[:, 0].std(ddof=1) / np.sqrt(len(values))
    return float(values[:, 0].mean()), reach(float(spread), len(values) - 1)


def _line(group: Group, x: Values) -> Line:
    values = 100 * np.array([_cut(record, record.metrics.accuracy, group) for record in group.records])
    band = values.std(0, ddof=1) if len(values) > 1 else None
    return Line(group.name, x, values.mean(0), band, family=group.family, shaded=True)


def _rounds(group: Group) -> Values:
    return _cut(group.records[0], group.records[0].metrics.round, group)


def _cut(record: RunCurves, column: Sequence[float], group: Group) -> Values:
    """Return a column of the metrics, as far as all runs of the group go."""
    shortest = min(len(one.metrics.round) for one in group.records)
    if not shortest:
        raise UserError(f"{record.run} has no metrics by round: a run from elsewhere has none")
    return np.array(column[:shortest], dtype=np.float64)


def _spread(found: Sequence[Group]) -> str:
    counts = sorted({len(group.records) for group in found})
    if counts == [1]:
        return ""
    return f"mean ± one standard deviation over {' or '.join(map(str, counts))} seeds"


def _reach(estimate: Estimate) -> Reach:
    """Return a value and half of its 95 % interval."""
    return estimate.value, reach(estimate.stderr, estimate.dof)


_DRAWINGS: dict[Kind, Callable[[Sequence[Group], str], Figure]] = {
    "accuracy": _accuracy, "bytes": _bytes, "rounds": _by_round, "stability": _stability,
    "sharpness": _sharpness, "gap": _gap, "layers": _layers, "drift": partial(_diagnostics, "drift"),
    "steps": partial(_diagnostics, "steps"), "local": partial(_diagnostics, "local"),
    "probes": partial(_diagnostics, "probes"),
}  # fmt: skip
