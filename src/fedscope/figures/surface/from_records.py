"""Landscape records as drawings, as `fedscope plot-landscape` makes them, from the records alone.

A figure can be drawn again from records, or otherwise, without computing anything.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedscope.errors import UserError
from fedscope.figures.kinds import SurfaceKind
from fedscope.figures.numbers import three_digits
from fedscope.figures.surface.profiles import profile_figure
from fedscope.figures.surface.shown import RecordedAxis, RecordedSurface
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.figures.text.labels import in_subspace, titles
from fedscope.records.landscape_record import BarrierEntry, LandscapeRecord, SurfaceEntry


def read_surface(record: SurfaceEntry) -> RecordedSurface:
    """Return the surface in a record as tensors."""
    return RecordedSurface(
        axes=tuple(RecordedAxis(axis.name, _tensor(axis.values)) for axis in record.axes),
        loss=_tensor(record.loss),
        directions=record.directions,
        center_loss=record.center_loss,
        stderr=None if record.stderr is None else _tensor(record.stderr),
        metrics={name: _tensor(grid) for name, grid in record.metrics.items()},
        metrics_stderr={name: _tensor(grid) for name, grid in record.metrics_stderr.items()},
        center_metrics=record.center_metrics,
        marks=record.marks,
        path=record.path,
        computed=None if record.computed is None else torch.tensor(record.computed, dtype=torch.bool),
        interpolation_error=record.interpolation_error,
    )


def draw(
    records: Sequence[LandscapeRecord],
    *,
    kind: SurfaceKind = "both",
    metric: str = "loss",
    names: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
    **layout: Any,
) -> Figure:
    """Draw planes side by side, or lines in one axes, with titles and captions from their records.

    ``names`` and ``captions`` are used instead of the records' own; ``layout`` is of planes, see
    :func:`~fedscope.figures.surface.surfaces.landscape_figure`.
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


def caption(record: LandscapeRecord) -> str:
    """Return the panel's caption: round, λ₁ and λ₂ with their matrix, samples."""
    round, curvature = record.checkpoint.round, record.curvature
    parts = [f"round {round}"] if round is not None else []
    if curvature and not any(map(math.isnan, curvature)):
        of = "Gauss–Newton " * (record.directions == "ggn")
        values = [f"λ{_SUBSCRIPTS[i]} {three_digits(value)}" for i, value in enumerate(curvature[:2])]
        parts += [of + ", ".join(values)]
    return f"{', '.join(parts)} ({record.problem.samples}\N{NO-BREAK SPACE}samples)".strip() + in_subspace(
        [record]
    )


_SUBSCRIPTS = "₁₂"


def _draw_lines(
    records: Sequence[LandscapeRecord], surfaces: Sequence[RecordedSurface], names: Sequence[str], metric: str
) -> Figure:
    samples = records[0].problem.samples
    same = all(record.problem.samples == samples for record in records)
    text = f"{samples} samples" if same else ""
    text = f"{text}{in_subspace(records)}".removeprefix("; ")
    if all(surface.stderr is not None for surface in surfaces):
        text += f"{'; ' if text else ''}band: 95 % intervals over samples"
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


def _barrier(record: LandscapeRecord) -> BarrierEntry | None:
    found = record.barrier
    return None if found is None or math.isnan(found.height) or math.isnan(found.at) else found


def _tensor(numbers: Sequence[Any]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)
