"""Landscapes in the page: planes that a reader switches and rotates, and lines in one chart.

Records along the same kind of directions share one scale and camera, over all methods and rounds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedscope.figures.color_scale import Scale, is_percentage, shared_scale
from fedscope.figures.digits import format_estimate
from fedscope.figures.label_placement import axis_name
from fedscope.figures.surface.drawn_planes import CAMERA
from fedscope.figures.surface.profiles import profile_panel
from fedscope.figures.text.labels import in_subspace, label, shared_name
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.report import plotly_panels as look
from fedscope.report.plotly_panels import Chart, chart
from fedscope.report.subjects import Key, Subjects, key_of, row_names

Grid = NDArray[np.float64]
LEVELS = 14  # contour lines over the whole scale
TITLES = {
    "eigen": "Along the two top eigenvectors of the Hessian",
    "random": "Along two random filter-normalised directions",
    "pca": "The trajectory's principal plane",
    "clients": "The plane of the clients' drift",
    "points": "The plane through three networks",
    "line": "The line between two networks",
    "ggn": "Along the two top eigenvectors of the Gauss–Newton matrix",
}


@dataclass(frozen=True)
class SlicesGroup:
    """Landscapes along one kind of directions: planes, or lines."""

    title: str
    records: list[LandscapeRecord]  # of distinct subjects or rounds, in the order given

    @property
    def is_line(self) -> bool:
        return len(self.records[0].axes) == 1


def groups(records: Sequence[LandscapeRecord]) -> list[SlicesGroup]:
    found: dict[tuple[int, str], list[LandscapeRecord]] = {}
    for record in records:
        found.setdefault((len(record.axes), record.directions), []).append(record)
    return [
        SlicesGroup(TITLES.get(name, f"Directions: {name}"), members) for (_, name), members in found.items()
    ]


def obstacle(group: SlicesGroup) -> str | None:
    for record in group.records:
        for axis in record.axes:
            if not all(b > a for a, b in pairwise(axis.values)):
                return f"the coordinates of {label(record.checkpoint)} do not increase: use a --span above 0"
            if len(axis.values) < 2:
                return f"{label(record.checkpoint)} has one point along {axis.name}: use --grid 3 or more"
    if not any(np.isfinite(_array(record.loss)).any() for record in group.records):
        return "no loss on the grid is finite: choose a smaller --span"
    return None


def newest(group: SlicesGroup) -> list[LandscapeRecord]:
    last: dict[Key, LandscapeRecord] = {}
    for record in group.records:
        key = key_of(record.checkpoint)
        if key not in last or _round(record) >= _round(last[key]):
            last[key] = record
    return list(last.values())


def plane_data(group: SlicesGroup, who: Subjects) -> dict[str, Any]:
    losses = [_array(record.loss) for record in group.records]
    shown = sorted({key_of(r.checkpoint): None for r in group.records}, key=lambda key: who[key].index)
    named = set.intersection(*({*record.metrics} for record in group.records))
    quantities = {"loss": _scale(shared_scale(losses))}
    for name in sorted(named):
        grids = [_array(record.metrics[name]) for record in group.records]
        if any(np.isfinite(grid).any() for grid in grids):
            quantities[name] = _scale(shared_scale(grids, name))
    return {
        "quantities": quantities,
        "rounds": sorted({_round(record) for record in group.records}),
        "subjects": [{"name": who[key].name, "views": _views_of(group, key)} for key in shown],
        "views": [_view(record, quantities) for record in group.records],
        "colorscale": look.colorscale(),
        "eye": _eye(),
    }


def line_charts(group: SlicesGroup, who: Subjects, place: int) -> list[Chart]:
    named = set.intersection(*({*record.metrics} for record in group.records))
    axis = shared_name([record.axes[0].name for record in group.records])
    names = row_names(group.records, who)
    words = "; ".join(f"{own}: {_barrier(r)}" for own, r in zip(names, group.records, strict=True)) + "."
    looks = {own: who[key_of(r.checkpoint)] for own, r in zip(names, group.records, strict=True)}
    charts = []
    for name in ("loss", *sorted(named)):
        said = words
        if name == "loss" and any(record.stderr for record in group.records):
            said += " Band: 95 % intervals over samples."
        charts.append(
            chart(
                f"line-{place}-{name}", profile_panel(group.records, names, name), looks,
                alt=f"{name} along {axis}. {said}", caption=said, hovermode="x unified",
            )
        )  # fmt: skip
    return charts


def caption(record: LandscapeRecord) -> str:
    center, values, along = record.center_loss, record.curvature, record.surface_curvature
    parts = [
        "the loss at the centre is not finite"
        if math.isnan(center)
        else f"loss at the centre {format_estimate(center)}"
    ]
    if values and not any(map(math.isnan, values)):
        of = "Gauss–Newton " * (record.directions == "ggn")
        parts.append(of + ", ".join(f"λ{'₁₂₃'[i]} {format_estimate(v)}" for i, v in enumerate(values[:3])))
    if along and not any(map(math.isnan, along)) and _words(along) != _words(values):
        parts.append(f"curvature along the axes {_words(along)}")
    loss = _array(record.loss)
    if missing := int((~np.isfinite(loss)).sum()):
        parts.append(f"{missing} of {loss.size} points not finite (grey)")
    if record.interpolation_error is not None:
        points = int(_array(record.computed).sum()) if record.computed else loss.size
        error = f"{100 * record.interpolation_error:.2g} %"
        parts.append(f"{points} of {loss.size} points evaluated, the others interpolated to {error}")
    if (lender := record.directions_of) and lender.sha256 != record.checkpoint.sha256:
        parts.append(f"along the directions of {label(lender)}")
    if record.marks:
        furthest = format_estimate(max(mark.distance for mark in record.marks))
        parts.append(f"{len(record.marks)} networks marked, at most {furthest} from the plane")
    said = f"{'; '.join(parts)}{in_subspace([record])}"
    return f"{label(record.checkpoint)}, {record.problem.samples} samples: {said}."


def _words(values: Sequence[float]) -> str:
    return ", ".join(map(format_estimate, values))


def _round(record: LandscapeRecord) -> int:
    return record.checkpoint.round or 0


def _views_of(group: SlicesGroup, key: Key) -> list[list[int]]:
    own = [(_round(r), i) for i, r in enumerate(group.records) if key_of(r.checkpoint) == key]
    return [list(pair) for pair in sorted(own)]


def _view(record: LandscapeRecord, quantities: Mapping[str, Any]) -> dict[str, Any]:
    grids = {"loss": record.loss, **record.metrics}
    first, second = record.axes
    return {
        "label": look.text(label(record.checkpoint)),
        "axes": [look.text(axis_name(axis.name)) for axis in record.axes],
        "x": look.numbers(first.values),
        "y": look.numbers(second.values),
        # plotly's rows run along y
        "z": {name: look.numbers(_turned(grid)) for name, grid in grids.items() if name in quantities},
        "stderr": record.stderr and look.numbers(_turned(record.stderr)),
        "computed": record.computed and _turned(record.computed),
        "marks": [
            {"label": look.text(mark.label), "at": mark.at, "distance": look.numbers(mark.distance)}
            for mark in record.marks
        ],
        "path": record.path,
        "caption": caption(record),
    }


def _scale(scale: Scale) -> dict[str, Any]:
    low, high = scale.height(np.array([scale.low, scale.high])).tolist()
    factor = 100 if is_percentage(scale.metric) else 1
    return {
        "label": look.text(scale.label()),
        "log": scale.log,
        "low": low,
        "high": high,
        "step": (high - low) / LEVELS,
        "ticks": [float(scale.height(np.array(tick))) for tick in scale.ticks()],
        "words": [look.plain(factor * tick) for tick in scale.ticks()],
        "note": f"Cut at {look.plain(scale.high)}; the highest on the grid is {look.plain(scale.highest)}."
        if scale.clipped
        else "",
    }


def _barrier(record: LandscapeRecord) -> str:
    found = record.barrier
    if found is None or math.isnan(found.height):
        return "no barrier is known"
    return f"barrier {format_estimate(found.height)} at {look.plain(found.at)}"


def _eye() -> list[float]:
    up, around, reach = math.radians(CAMERA["elev"]), math.radians(CAMERA["azim"]), 2.0
    flat = reach * math.cos(up)
    return [flat * math.cos(around), flat * math.sin(around), reach * math.sin(up)]


def _turned(grid: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*grid, strict=True)]


def _array(values: Any) -> Grid:
    return np.array(values, dtype=np.float64)
