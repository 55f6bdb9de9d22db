"""Landscape records as drawings: what `fedscope plot-landscape` makes, from the records alone.

Built from the JSON of ``fedscope plot-landscape --json`` (schema ``fedscope/landscape/1``), so that a figure
can be drawn again, or otherwise, without computing anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedscope.errors import UserError
from fedscope.figures.surface.profiles import Barrier, profile_figure
from fedscope.figures.surface.shown import RecordedAxis, RecordedMark, RecordedSurface
from fedscope.figures.surface.surfaces import Kind, landscape_figure
from fedscope.figures.text.labels import titles
from fedscope.records.schemas import LANDSCAPE_SCHEMA as SCHEMA

Record = Mapping[str, Any]


def read_surface(record: Record) -> RecordedSurface:
    """Return the surface in a record; what was not finite, null in JSON, is NaN. Keys may be absent.

    Raises:
        UserError: it is no landscape record, or its grid does not fit its axes.
    """
    if record.get("schema") != SCHEMA:
        raise UserError(
            f"a record has the schema {record.get('schema')!r}, not {SCHEMA!r}: "
            "make it with 'fedscope plot-landscape --json FILE'"
        )
    try:
        surface = _surface(record)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"a landscape record is not whole ({error!r}); make it again") from error
    shape = tuple(len(axis.values) for axis in surface.axes)
    grids = [surface.loss, surface.stderr, surface.computed, *surface.metrics.values()]
    wrong = [tuple(grid.shape) for grid in grids if grid is not None and tuple(grid.shape) != shape]
    if wrong or len(shape) not in (1, 2):
        raise UserError(
            f"a landscape record has a grid of shape {(wrong or [shape])[0]} on axes of {shape} points"
        )
    return surface


def draw(
    records: Sequence[Record],
    *,
    kind: Kind = "both",
    metric: str = "loss",
    names: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
    **layout: Any,
) -> Figure:
    """Draw planes side by side, or lines in one axes, with titles and captions from their records.

    ``names`` and ``captions`` are used instead of the records' own; ``layout`` is of planes, see
    :func:`~fedscope.figures.surface.surfaces.landscape_figure`.

    Raises:
        UserError: no record, planes and lines together, or what cannot be drawn.
    """
    if not records:
        raise UserError("there is no landscape to draw: make one with 'fedscope plot-landscape --json FILE'")
    surfaces = [read_surface(record) for record in records]
    names = titles(records) if names is None else names
    lines = {len(surface.axes) == 1 for surface in surfaces}
    if len(lines) > 1:
        raise UserError("planes and profiles along a line do not share a figure: draw them apart")
    if lines == {True}:
        return _draw_lines(records, surfaces, names, metric)
    captions = [caption(record) for record in records] if captions is None else captions
    return landscape_figure(surfaces, names, captions=captions, kind=kind, metric=metric, **layout)


def caption(record: Record) -> str:
    """Return what the panel shows, in a line: round, λ₁ and λ₂ and of which matrix, samples."""
    round, curvature = record["checkpoint"].get("round"), record.get("curvature")
    parts = [f"round {round}"] if round is not None else []
    if curvature and None not in curvature:
        of = "Gauss–Newton " * (record["directions"] == "ggn")
        digits = [f"{value:#.3g}".rstrip(".") for value in curvature[:2]]
        values = [f"λ{_SUBSCRIPTS[i]} {text}" for i, text in enumerate(digits)]
        parts += [of + ", ".join(values)]
    return f"{', '.join(parts)} ({record['problem']['samples']}\N{NO-BREAK SPACE}samples)".strip()


_SUBSCRIPTS = "₁₂"


def _draw_lines(
    records: Sequence[Record], surfaces: Sequence[RecordedSurface], names: Sequence[str], metric: str
) -> Figure:
    problem = records[0]["problem"]
    same = all(record["problem"].get("samples") == problem.get("samples") for record in records)
    text = f"{problem['samples']} samples" if same else ""
    if all(surface.stderr is not None for surface in surfaces):
        text += f"{'; ' if text else ''}band: ± one standard error over samples"
    return profile_figure(
        surfaces,
        names,
        barriers=[_barrier(record) for record in records],
        metrics=None if metric == "loss" else [metric],
        title=_ends(surfaces[0]) or names[0] if len(names) == 1 else "",
        caption=text,
    )


def _ends(line: RecordedSurface) -> str:
    names = [mark.label for mark in line.marks]
    return f"{names[0]} → {names[-1]}" if len(names) > 1 else ""


def _barrier(record: Record) -> Barrier | None:
    found = record.get("barrier")
    if not found or found["height"] is None or found["at"] is None:
        return None
    return Barrier(float(found["height"]), float(found["at"]))


def _surface(record: Record) -> RecordedSurface:
    loss = _grid(record["loss"])
    stderr, computed = record.get("stderr"), record.get("computed")
    marks = [
        RecordedMark(mark["label"], tuple(map(float, mark["at"])), float(mark["distance"]))
        for mark in record.get("marks") or ()
    ]
    center = record["center_loss"]
    return RecordedSurface(
        axes=tuple(RecordedAxis(axis["name"], _grid(axis["values"])) for axis in record["axes"]),
        loss=loss,
        directions=record["directions"],
        center_loss=float("nan") if center is None else float(center),
        stderr=None if stderr is None else _grid(stderr),
        metrics={name: _grid(grid) for name, grid in (record.get("metrics") or {}).items()},
        marks=tuple(marks),
        path=bool(record.get("path")),
        computed=None if computed is None else torch.tensor(computed, dtype=torch.bool),
        interpolation_error=record.get("interpolation_error"),
    )


def _grid(numbers: Sequence[Any]) -> Tensor:
    """Return nested lists of numbers as a float64 tensor, null as NaN."""
    return torch.tensor(_known(numbers), dtype=torch.float64)


def _known(numbers: Any) -> Any:
    if isinstance(numbers, list | tuple):
        return [_known(number) for number in numbers]
    return float("nan") if numbers is None else float(numbers)
