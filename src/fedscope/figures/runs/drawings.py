"""Runs as drawings: accuracy, diagnostics and sharpness by round, accuracy by traffic and by sharpness."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.figure_kinds import RunsKind
from fedscope.figures.half_intervals import reach, reach_of, reach_over_seeds
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Panel, Values
from fedscope.figures.runs.accuracy_curves import rounds_figure
from fedscope.figures.runs.groups import SeedGroup, accuracy_line, cut, groups, rounds_of, spread_of
from fedscope.figures.runs.quantity_curves import curvature_figure, diagnostics_figure, stability_figure
from fedscope.figures.runs.row_dots import layer_figure
from fedscope.figures.runs.tradeoff import MethodPoint, Reach, tradeoff_figure
from fedscope.figures.text.labels import data_name
from fedscope.records.quantities import SIZES
from fedscope.records.run_curves import RunCurves, accuracy_at, curvature_at, gap_at, name_of

UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
FLATTER = " (← flatter)"


def draw(records: Sequence[RunCurves], kind: RunsKind, *, title: str = "") -> Figure:
    """Draw one kind of figure of several runs.

    ``stability`` is λ_max in units of the largest that local steps are stable at, ``gap`` test loss less
    training loss; ``drift``, ``steps``, ``local`` and ``probes`` are families of :mod:`.round_quantities`.
    """
    if not records:
        raise UserError("there is no run to draw: give one, or --from a record")
    return _DRAWINGS[kind](groups(records), title)


def _accuracy(found: Sequence[SeedGroup], title: str) -> Figure:
    lines = [accuracy_line(group, rounds_of(group)) for group in found]
    return rounds_figure(lines, y_label="test accuracy (%)", title=title, caption=spread_of(found))


def _bytes(found: Sequence[SeedGroup], title: str) -> Figure:
    sent = [np.mean([cut(r, r.metrics.bytes, group) for r in group.records], axis=0) for group in found]
    largest = max(float(values.max()) for values in sent)
    unit = next((name for name, size in UNITS.items() if largest >= size), "kB")
    if not largest:
        raise UserError(
            "the metrics of these runs have no bytes: a run from elsewhere, or of an older fedscope"
        )
    lines = [accuracy_line(group, values / UNITS[unit]) for group, values in zip(found, sent, strict=True)]
    axes = (f"sent by server and clients ({unit})", "test accuracy (%)")
    return panels_figure([Panel(lines, *axes)], title=title, caption=spread_of(found))


def _sharpness(found: Sequence[SeedGroup], title: str) -> Figure:
    heights = [
        [(100 * value, 100 * reach(error)) for value, error in map(accuracy_at, group.records)]
        for group in found
    ]
    return _tradeoff(found, heights, "test accuracy (%)", title)


def _gap(found: Sequence[SeedGroup], title: str) -> Figure:
    heights = [[(gap_at(record), np.nan) for record in group.records] for group in found]
    return _tradeoff(found, heights, "test loss − training loss", title)


def _tradeoff(
    found: Sequence[SeedGroup], heights: Sequence[Sequence[Reach]], y_label: str, title: str
) -> Figure:
    records = [record for group in found for record in group.records]
    samples, curvature = curvature_at(records)
    measured, points = iter(curvature), []
    for group, height in zip(found, heights, strict=True):
        own = [next(measured) for _ in group.records]
        across = {
            size.symbol + FLATTER: _mean(
                np.array([(entry.value, reach_of(entry)) for one in own if (entry := size.of(one))])
            )
            for size in SIZES
        }
        points.append(MethodPoint(group.name, across, _mean(np.array(height))))
    return tradeoff_figure(points, y_label=y_label, title=title, caption=_conditions(found, samples))


def _conditions(found: Sequence[SeedGroup], samples: int) -> str:
    records = [record for group in found for record in group.records]
    parts = [", ".join(dict.fromkeys(data_name(record.dataset) for record in records))]
    rounds = sorted({record.at.round for record in records})
    parts.append(f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}")
    parts.append(_seeds(found))
    bars = "bars: 95\N{NO-BREAK SPACE}% intervals"
    if len({min(len(group.records), 2) for group in found}) > 1:
        bars += ", of one seed those of the measurement alone"
    return f"{', '.join(parts)}; curvature on {samples:,} training samples; {bars}"


def _seeds(found: Sequence[SeedGroup]) -> str:
    counts = [len(group.records) for group in found]
    if len(set(counts)) == 1:
        return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
    most = [group.name for group, count in zip(found, counts, strict=True) if count == max(counts)]
    rest = "one" if sorted(set(counts))[:-1] == [1] else f"{min(counts)} or more"
    return f"{max(counts)} seeds of {' and '.join(most)}, {rest} of the others"


def _layers(found: Sequence[SeedGroup], title: str) -> Figure:
    records = [record for group in found for record in group.records]
    samples, curvature = curvature_at([_with_layers(record) for record in records])
    by_layer = [{layer.name: (layer.value, reach_of(layer)) for layer in one.layers} for one in curvature]
    names = list(dict.fromkeys(name for one in by_layer for name in one))
    rows = iter([[one.get(name, (math.nan, math.nan)) for name in names] for one in by_layer])
    values = {}
    for group in found:
        own = np.array([next(rows) for _ in group.records])  # (seeds, layers, 2)
        values[group.name] = np.array([_mean(of) for of in own.swapaxes(0, 1)])
    return layer_figure(
        names,
        values,
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
    half = reach_over_seeds(values[:, 0])
    return float(values[:, 0].mean()), float(values[0, 1] if half is None else half)


_DRAWINGS: dict[RunsKind, Callable[[Sequence[SeedGroup], str], Figure]] = {
    "accuracy": _accuracy, "bytes": _bytes, "rounds": curvature_figure, "stability": stability_figure,
    "sharpness": _sharpness, "gap": _gap, "layers": _layers, "drift": partial(diagnostics_figure, "drift"),
    "steps": partial(diagnostics_figure, "steps"), "local": partial(diagnostics_figure, "local"),
    "probes": partial(diagnostics_figure, "probes"),
}  # fmt: skip
