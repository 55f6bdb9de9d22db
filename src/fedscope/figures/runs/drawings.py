"""Runs as drawings: accuracy, diagnostics and sharpness by round, accuracy by traffic and by sharpness."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.figure_kinds import RunsKind, check_kind
from fedscope.figures.label_placement import POINTS, Points, dress_axis, place, samples, text_size, width_of
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Dots, Panel, Part, Ticks, Values, reach, reach_of, reach_over_seeds
from fedscope.figures.runs.groups import (
    SeedGroup,
    accuracy_line,
    cut,
    groups,
    rounds_figure,
    rounds_of,
    spread_of,
)
from fedscope.figures.runs.quantity_curves import curvature_figure, diagnostics_figure, stability_figure
from fedscope.figures.runs.row_dots import layer_figure
from fedscope.figures.text.labels import data_name, family
from fedscope.records.quantities import SIZES
from fedscope.records.run_curves import RunCurves, accuracy_at, curvature_at, gap_at, name_of

UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
FLATTER = " (← flatter)"
MOST_POINTS = 24
MARKER = 5.0  # diameter in points
MARGINS = ((0.08, 0.07), (0.2, 0.07))  # of the axes' width and height, below and above the points
HIGH, LEFT = 2.35, 0.48  # inches

Reach = tuple[float, float]  # value and half of its 95 % interval, NaN where there is none
Colors = Mapping[str, tuple[str, style.Color]]


def draw(records: Sequence[RunCurves], kind: RunsKind, *, title: str = "") -> Figure:
    """Draw one kind of figure of several runs.

    ``stability`` is λ_max in units of the largest that local steps are stable at, ``gap`` test loss less
    training loss; ``drift``, ``steps``, ``local`` and ``probes`` are families of :mod:`.round_quantities`.
    """
    if not records:
        raise UserError("there is no run to draw: give one, or --from a record")
    check_kind(kind, RunsKind)
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
    sizes = [size for size in SIZES if all(map(size.of, curvature))]
    measured, points = iter(curvature), []
    for group, height in zip(found, heights, strict=True):
        own = [next(measured) for _ in group.records]
        across = {
            size.symbol + FLATTER: _mean(
                np.array([(entry.value, reach_of(entry)) for one in own if (entry := size.of(one))])
            )
            for size in sizes
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


def colors_by_family(names: Sequence[str]) -> dict[str, tuple[str, style.Color]]:
    """Return for each of ``names`` the one that it adds to, or itself, and the colour of both."""
    bases = [family(name, names) or name for name in names]
    colors = dict(zip(dict.fromkeys(bases), style.method_colors(len(set(bases))), strict=True))
    return {name: (base, colors[base]) for name, base in zip(names, bases, strict=True)}


@dataclass(frozen=True)
class MethodPoint:
    """One method: its name, its place by the axis' name, and its height."""

    name: str
    x: Mapping[str, Reach]
    y: Reach


def tradeoff_figure(
    points: Sequence[MethodPoint],
    *,
    y_label: str,
    title: str = "",
    caption: str = "",
    width: float = style.WIDE_COLUMN,
) -> Figure:
    """Draw the points in one panel for each quantity of ``x``, with 95 % intervals along both axes.

    A method is a hollow point; one that adds to it is a filled one of its colour, to which an arrow leads.
    """
    if not 1 <= len(points) <= MOST_POINTS:
        raise UserError(f"one figure shows 1 to {MOST_POINTS} methods, not {len(points)}: make several")
    for point in points:
        if not np.isfinite([point.y[0], *(value for value, _ in point.x.values())]).all():
            raise UserError(f"a value of {point.name} is not finite, so it has no place; see --json")
    colors = colors_by_family([point.name for point in points])
    added = sorted({name[len(base) + 1 :] for name, (base, _) in colors.items()} - {""})
    panels = [_panel(points, quantity, colors, added, y_label) for quantity in points[0].x]
    figure = panels_figure(
        panels, columns=len(panels), width=width, high=HIGH, left=LEFT, title=title, caption=caption
    )
    with style.paper_style():
        for axes, quantity in zip(figure.axes, points[0].x, strict=True):
            _label(axes, points, quantity, colors, len(added))
        dress_axis(figure.axes[0].yaxis, y_label, figure.axes[0].get_ylim(), room=POINTS * HIGH, ticks=5)
    return figure


def _panel(
    points: Sequence[MethodPoint], quantity: str, colors: Colors, added: Sequence[str], y_label: str
) -> Panel:
    at = np.array([(point.x[quantity], point.y) for point in points])  # (methods, axes, value and error)
    values, errors = at[..., 0], np.nan_to_num(at[..., 1])
    parts: list[Part] = []
    for label, filled in (("alone", False), (f"with {' or '.join(added)}", True)) if added else ():
        key: dict[str, Any] = {"label": label, "color": style.FAINT_INK, "filled": filled, "size": MARKER}
        parts.append(Dots(np.empty(0), np.empty(0), **key))
    for index, point in enumerate(points):
        base, color = colors[point.name]
        x, y = values[index, :, None]
        wide, high = errors[index, :, None]
        look: dict[str, Any] = {"color": color, "filled": point.name != base or not added, "size": MARKER}
        parts.append(Dots(x, y, across=wide, up=high, **look))
    (left, bottom), (right, top) = _limits(values, errors)
    x, y = Ticks(5, limits=(left, right)), Ticks(5, limits=(bottom, top))
    return Panel(parts, quantity, y_label, x=x, y=y, grid="both")


def _limits(at: Points, errors: Points) -> Points:
    low, high = (at - errors).min(axis=0), (at + errors).max(axis=0)
    extent = np.where(high > low, high - low, np.abs(high) + 1e-12)
    below, above = np.array(MARGINS)
    return np.array([low - below * extent, high + above * extent])


def _label(axes: Axes, points: Sequence[MethodPoint], quantity: str, colors: Colors, additions: int) -> None:
    """Draw the arrows and the names; a name is left out where colour and fill identify its point."""
    page = (width_of(axes), POINTS * HIGH)
    at = {point.name: (point.x[quantity][0], point.y[0]) for point in points}
    lines, labels = [], {}
    for point in points:
        (x, y), (base, color) = at[point.name], colors[point.name]
        wide, high = np.nan_to_num([point.x[quantity][1], point.y[1]])
        lines += [[(x - wide, y), (x + wide, y)], [(x, y - high), (x, y + high)]]
        labels[point.name] = base if point.name == base else (additions > 1) * point.name[len(base) :]
        if base in at and base != point.name:
            look: dict[str, Any] = {"arrowstyle": "-|>", "color": color, "lw": 1.0, "mutation_scale": 7}
            arrow = {**look, "shrinkA": 3.5, "shrinkB": 3.5}
            axes.annotate("", (x, y), at[base], arrowprops=arrow, zorder=3)
            lines.append([at[base], (x, y)])
    named = sorted(labels, key=lambda name: not labels[name])
    texts = [style.typeset(labels[name]) for name in named if labels[name]]
    spots: Points = axes.transLimits.transform([at[name] for name in named]) * page
    ink = [samples(axes.transLimits.transform(line) * page) for line in lines]
    sizes = np.array([text_size(text, style.TEXT_SIZE) for text in texts])
    places = place(spots, sizes, page=page, radius=MARKER / 2 + 1.0, lines=np.concatenate(ink))
    for name, text, found in zip(named, texts, places, strict=False):
        if found is not None:
            x, y = np.array(found.middle) / page
            axes.text(
                x, y, text, fontsize=style.TEXT_SIZE, color=colors[name][1], ha="center", va="center",
                zorder=5,
                transform=axes.transAxes, path_effects=[withStroke(linewidth=1.5, foreground="white")],
            )  # fmt: skip
