"""Landscape records as drawings, from the records alone, without computing anything."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.digits import three_digits
from fedscope.figures.figure_kinds import SurfaceKind, check_kind
from fedscope.figures.surface.profiles import profile_figure
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.figures.text.labels import in_subspace, titles
from fedscope.records.landscape_record import BarrierEntry, LandscapeRecord


def draw(
    records: Sequence[LandscapeRecord],
    *,
    kind: SurfaceKind = "both",
    metric: str = "loss",
    names: Sequence[str] | None = None,
    captions: Sequence[str] | None = None,
    **layout: Any,
) -> Figure:
    """Draw planes side by side, or lines in one axes; ``layout`` is :func:`landscape_figure`'s."""
    if not records:
        raise UserError("there is no landscape to draw: make one with 'fedscope plot-landscape --json FILE'")
    check_kind(kind, SurfaceKind)
    names = titles(records) if names is None else names
    lines = {len(record.axes) == 1 for record in records}
    if len(lines) > 1:
        raise UserError("planes and profiles along a line do not share a figure: draw them apart")
    if lines == {True}:
        return _draw_lines(records, names, metric)
    captions = [caption(record) for record in records] if captions is None else captions
    return landscape_figure(records, names, captions=captions, kind=kind, metric=metric, **layout)


def caption(record: LandscapeRecord) -> str:
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


def _draw_lines(records: Sequence[LandscapeRecord], names: Sequence[str], metric: str) -> Figure:
    samples = records[0].problem.samples
    same = all(record.problem.samples == samples for record in records)
    text = f"{samples} samples" if same else ""
    text = f"{text}{in_subspace(records)}".removeprefix("; ")
    if all(record.stderr is not None for record in records):
        text += f"{'; ' if text else ''}band: 95 % intervals over samples"
    return profile_figure(
        records,
        names,
        barriers=[_barrier(record) for record in records],
        metrics=None if metric == "loss" else [metric],
        title=_ends(records[0]) or names[0] if len(names) == 1 else "",
        caption=text,
    )


def _ends(line: LandscapeRecord) -> str:
    names = [mark.label for mark in line.marks]
    return f"{names[0]} → {names[-1]}" if len(names) > 1 else ""


def _barrier(record: LandscapeRecord) -> BarrierEntry | None:
    found = record.barrier
    return None if found is None or math.isnan(found.height) or math.isnan(found.at) else found
