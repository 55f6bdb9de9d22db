"""Landscapes as the page shows them: planes that a reader switches and rotates, lines laid over each other.

Records along the same kind of directions share one scale and camera, over all methods and rounds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedscope.figures.axis_labels import axis_name
from fedscope.figures.color_scale import Scale, is_percentage, shared_scale
from fedscope.figures.numbers import format_estimate
from fedscope.figures.surface.panels import CAMERA
from fedscope.figures.text.labels import label, shared_name
from fedscope.report import look
from fedscope.report.look import Chart
from fedscope.report.subjects import Key, Record, Subject, key_of, row_names

Subjects = Mapping[Key, Subject]
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
class Group:
    """Landscapes along one kind of directions: planes, or lines."""

    title: str
    records: list[Record]  # of distinct subjects or rounds, in the order given

    @property
    def is_line(self) -> bool:
        """Whether these have one axis."""
        return len(self.records[0]["axes"]) == 1


def groups(records: Sequence[Record]) -> list[Group]:
    """Return the records by their directions, each group in the order given."""
    found: dict[tuple[int, str], list[Record]] = {}
    for record in records:
        found.setdefault((len(record["axes"]), str(record["directions"])), []).append(record)
    return [Group(_title(name), members) for (_, name), members in found.items()]


def obstacle(group: Group) -> str | None:
    """Return why a group cannot be drawn, if it cannot."""
    for record in group.records:
        for axis in record["axes"]:
            if not all(b > a for a, b in zip(axis["values"], axis["values"][1:], strict=False)):
                return (
                    f"the coordinates of {label(record['checkpoint'])} do not increase: use a --span above 0"
                )
            if len(axis["values"]) < 2:
                return (
                    f"{label(record['checkpoint'])} has one point along {axis['name']}: use --grid 3 or more"
                )
    if not any(value is not None for record in group.records for value in _flat(record["loss"])):
        return "no loss on the grid is finite: choose a smaller --span"
    return None


def newest(group: Group) -> list[Record]:
    """Return each subject's landscape of its last round."""
    last: dict[Key, Record] = {}
    for record in group.records:
        key = key_of(record["checkpoint"])
        if key not in last or _round(record) >= _round(last[key]):
            last[key] = record
    return list(last.values())


def plane_data(group: Group, who: Subjects) -> dict[str, Any]:
    """Return what the page draws planes from: their views, rounds, and a scale per quantity."""
    losses = [_array(record["loss"]) for record in group.records]
    shown = sorted({key_of(r["checkpoint"]): None for r in group.records}, key=lambda key: who[key].index)
    named = set.intersection(*({*(record.get("metrics") or {})} for record in group.records))
    quantities = {"loss": _scale(shared_scale(losses))}
    for name in sorted(named):
        grids = [_array(record["metrics"][name]) for record in group.records]
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


def line_charts(group: Group, who: Subjects, place: int) -> list[Chart]:
    """Return the charts of a group of lines: the loss with its band, and each metric that all have."""
    named = set.intersection(*({*(record.get("metrics") or {})} for record in group.records))
    axis = shared_name([record["axes"][0]["name"] for record in group.records])
    names, charts = row_names(group.records, who), []
    for name in ("loss", *sorted(named)):
        traces = [trace for record in group.records for trace in _line(record, who, name)]
        words = "; ".join(f"{own}: {_barrier(r)}" for own, r in zip(names, group.records, strict=True)) + "."
        if name == "loss" and any(record.get("stderr") for record in group.records):
            words += " Band: ± one standard error over samples."
        layout = look.layout(axis, name, hovermode="x unified")
        charts.append(Chart(f"line-{place}-{name}", f"{name} along {axis}. {words}", words, traces, layout))
    return charts


def caption(record: Record) -> str:
    """Say in words what a view shows, and what of it is cut off, missing or interpolated."""
    center, values = record["center_loss"], record.get("curvature")
    parts = ["the loss at the centre is not finite"] if center is None else []
    parts += [] if center is None else [f"loss at the centre {format_estimate(center)}"]
    if values and None not in values:
        of = "Gauss–Newton " * (record["directions"] == "ggn")
        parts.append(of + ", ".join(f"λ{'₁₂₃'[i]} {format_estimate(v)}" for i, v in enumerate(values[:3])))
    along = record.get("surface_curvature")
    if along and None not in along and _words(along) != _words(values or ()):
        parts.append(f"curvature along the axes {_words(along)}")
    flat = _flat(record["loss"])
    if missing := sum(value is None for value in flat):
        parts.append(f"{missing} of {len(flat)} points not finite (grey)")
    if record.get("interpolation_error") is not None:
        points = sum(map(bool, _flat(record["computed"]))) if record.get("computed") else len(flat)
        error = f"{100 * record['interpolation_error']:.2g} %"
        parts.append(f"{points} of {len(flat)} points evaluated, the others interpolated to {error}")
    if (lender := record.get("directions_of")) and lender["sha256"] != record["checkpoint"]["sha256"]:
        parts.append(f"along the directions of {label(lender)}")
    marks = record.get("marks") or []
    if marks:
        furthest = max(mark["distance"] for mark in marks)
        parts.append(f"{len(marks)} networks marked, at most {format_estimate(furthest)} from the plane")
    return f"{label(record['checkpoint'])}, {record['problem']['samples']} samples: {'; '.join(parts)}."


def _words(values: Sequence[float | None]) -> str:
    return ", ".join(map(format_estimate, values))


def _title(directions: str) -> str:
    return TITLES.get(directions, f"Directions: {directions}")


def _round(record: Record) -> int:
    return int(record["checkpoint"].get("round") or 0)


def _views_of(group: Group, key: Key) -> list[list[int]]:
    """Return (round, place of the view) of one subject, by round."""
    own = [(_round(r), i) for i, r in enumerate(group.records) if key_of(r["checkpoint"]) == key]
    return [list(pair) for pair in sorted(own)]


def _view(record: Record, quantities: Mapping[str, Any]) -> dict[str, Any]:
    grids = {"loss": record["loss"], **(record.get("metrics") or {})}
    stderr, computed = record.get("stderr"), record.get("computed")
    return {
        "label": look.text(label(record["checkpoint"])),
        "axes": [look.text(axis_name(axis["name"])) for axis in record["axes"]],
        "x": look.numbers(record["axes"][0]["values"]),
        "y": look.numbers(record["axes"][1]["values"]),
        # plotly's rows run along y
        "z": {name: look.numbers(_turned(grid)) for name, grid in grids.items() if name in quantities},
        "stderr": stderr and look.numbers(_turned(stderr)),
        "computed": computed and _turned(computed),
        "marks": [
            {"label": look.text(mark["label"]), "at": mark["at"], "distance": look.numbers(mark["distance"])}
            for mark in record.get("marks") or ()
        ],
        "path": bool(record.get("path")),
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


def _line(record: Record, who: Subjects, name: str) -> list[dict[str, Any]]:
    subject = who[key_of(record["checkpoint"])]
    x, y = (
        look.numbers(record["axes"][0]["values"]),
        record[name] if name == "loss" else record["metrics"][name],
    )
    curve = {
        **look.of(subject),
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": look.numbers(y),
        "line": look.line(subject),
        "hovertemplate": "%{y:.4g}",
    }
    stderr = record.get("stderr") if name == "loss" else None
    if not stderr:
        return [curve]
    pairs = list(zip(y, stderr, strict=True))
    ends = [[None if None in pair else pair[0] + sign * pair[1] for pair in pairs] for sign in (-1, 1)]
    return [curve, *look.band(subject, x, look.numbers(ends[0]), look.numbers(ends[1]))]


def _barrier(record: Record) -> str:
    found = record.get("barrier")
    if not found or found.get("height") is None:
        return "no barrier is known"
    return f"barrier {format_estimate(found['height'])} at {look.plain(found['at'])}"


def _eye() -> list[float]:
    """Return the static figures' camera, as plotly places it."""
    up, around, reach = math.radians(CAMERA["elev"]), math.radians(CAMERA["azim"]), 2.0
    flat = reach * math.cos(up)
    return [flat * math.cos(around), flat * math.sin(around), reach * math.sin(up)]


def _turned(grid: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*grid, strict=True)]


def _flat(grid: Sequence[Any]) -> list[Any]:
    return [value for part in grid for value in (part if isinstance(part, list | tuple) else [part])]


def _array(values: Any) -> Grid:
    return np.array(values, dtype=np.float64)
