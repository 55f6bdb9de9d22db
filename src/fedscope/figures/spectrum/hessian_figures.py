"""Hessian records as drawings: densities, leading eigenvalues, matrices and bars of clients, samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.figure_kinds import SpectrumKind, check_kind
from fedscope.figures.label_placement import POINTS, text_size
from fedscope.figures.page import RIGHT, panels_figure
from fedscope.figures.panels import Bars, Panel, RuledLine, Ticks, Values, reach_of
from fedscope.figures.spectrum.densities import density_figure, eigenvalue_figure
from fedscope.figures.spectrum.matrices import client_matrix_figure
from fedscope.figures.spectrum.sample_shares import Concentration, Images, influence_figure
from fedscope.figures.text.hessian_table import check_any
from fedscope.figures.text.labels import label, measured_on, titles
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Entry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.quantities import SIZES

MOST_BARS = 100
NO_ERROR = "±?"
INTERVALS = "± 95 % intervals"
LEFT, HIGH = 0.5, 0.9  # inches


def draw(
    records: Sequence[HessianRecord], kind: SpectrumKind = "density", images: Images | None = None
) -> Figure:
    """Draw one kind of figure; ``influence`` has beside it ``images`` (K, H, W, C), from 0 to 1."""
    check_any(records)
    check_kind(kind, SpectrumKind)
    return _influence(records, images) if kind == "influence" else _DRAWINGS[kind](records)


def _densities(records: Sequence[HessianRecord]) -> Figure:
    largest = [record.lambda_max.value for record in records]
    if any(map(math.isnan, largest)):
        raise UserError("the curvature is not finite, so there is no density to draw; see --json")
    densities = [record.density or _refuse(record, "density part", "--density") for record in records]
    return density_figure(densities, titles(records), lambda_max=largest, caption=measured_on(records))


def _eigenvalues(records: Sequence[HessianRecord]) -> Figure:
    upper, lower = zip(*(record.ends for record in records), strict=True)
    smallest = [end[::-1] for end in lower] if any(lower) else None
    power = any(record.problem.engine == "power" for record in records)
    errors = "by power iteration, without errors" if power else "± 95 % over the samples"
    caption = f"{measured_on(records)}; {errors}"
    return eigenvalue_figure(upper, titles(records), smallest=smallest, caption=caption)


def _clients(records: Sequence[HessianRecord]) -> Figure:
    crossings = [
        record.cross_client or _refuse(record, "cross-client part", "--clients") for record in records
    ]
    # the published scripts have the diagonals of tensors only
    known = all(crossing.H_N.parameter for crossing in crossings)
    return client_matrix_figure(crossings, titles(records), reading="parameter" if known else "tensor")


def _bars(records: Sequence[HessianRecord]) -> Figure:
    if len(records) == 1 and records[0].cross_client:
        (title,) = titles(records)
        return bar_figure(client_bars(records[0].cross_client), axis="client", title=title)
    places = [record.checkpoint for record in records]
    clients = [place.client for place in places]
    if None not in clients and len({(place.run, place.round) for place in places}) == 1:
        title = f"{places[0].run} (round {places[0].round})"
        bars = checkpoint_bars(records, [str(client) for client in clients])
        return bar_figure(bars, axis="client", title=title, caption=measured_on(records))
    return bar_figure(checkpoint_bars(records, titles(records)), caption=measured_on(records))


def _influence(records: Sequence[HessianRecord], images: Images | None) -> Figure:
    curves = []
    for record, title in zip(records, titles(records), strict=True):
        top = record.lambda_max
        parts = top.by_sample or _refuse(record, "parts of the samples", "--influence")
        curves.append(Concentration(title, parts, top.effective_samples))
    caption = measured_on(records)
    return influence_figure(curves, first=records[0].influence, images=images, caption=caption)


def _refuse(record: HessianRecord, part: str, flag: str) -> NoReturn:
    raise UserError(
        f"the record of {label(record.checkpoint)} has no {part}: "
        f"measure it with 'fedscope hessian {flag} --json FILE'"
    )


_DRAWINGS = {"density": _densities, "eigenvalues": _eigenvalues, "clients": _clients, "bars": _bars}


@dataclass(frozen=True)
class CheckpointBar:
    """One checkpoint or client: its name or number, and of each quantity value and half the 95 % interval."""

    name: str
    values: Mapping[str, tuple[float, float]]  # NaN where unknown


def checkpoint_bars(records: Sequence[HessianRecord], labels: Sequence[str]) -> list[CheckpointBar]:
    """Return a bar per Hessian record; the trace's error is that of probes and data together."""
    return [
        CheckpointBar(name, {one.symbol: _value(found) for one in SIZES if (found := one.of(record))})
        for record, name in zip(records, labels, strict=True)
    ]


def client_bars(crossing: CrossClientEntry) -> list[CheckpointBar]:
    """Return a bar per client of a comparison of clients; the trace's error is the probes'."""
    if not crossing.traces:
        raise UserError(
            "the record has no traces of single clients: measure it again with "
            "'fedscope hessian --clients --recompute'"
        )
    bars = []
    for place, number in enumerate(crossing.client_numbers):
        values = {"λ_max": _value(crossing.lambda_max[place])} if crossing.lambda_max else {}
        values["trace"] = _value(crossing.traces[place])
        bars.append(CheckpointBar(str(number), values))
    return bars


def _value(entry: Entry) -> tuple[float, float]:
    whole = len(entry.errors) == len(entry.stated_errors)
    return entry.value, reach_of(entry) if whole else math.nan


def bar_figure(
    bars: Sequence[CheckpointBar],
    *,
    axis: str = "",
    title: str = "",
    caption: str = "",
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw a panel per quantity with a bar and its 95 % interval for each checkpoint or client.

    ``axis`` is what the bars are, such as "client"; ``caption`` begins the note.
    """
    if not 1 <= len(bars) <= MOST_BARS:
        raise UserError(f"one figure shows 1 to {MOST_BARS} bars, not {len(bars)}: make several figures")
    names = list(dict.fromkeys(name for bar in bars for name in bar.values))
    if not any(math.isfinite(value) for bar in bars for value, _ in bar.values.values()):
        raise UserError("no value is finite, so there is nothing to draw; see --json")
    room = POINTS * (width - LEFT - RIGHT) / len(bars)
    widest = max(text_size(style.typeset(bar.name), style.SMALL_SIZE)[0] for bar in bars)
    slanted = widest > 0.9 * room and not all(bar.name.isdigit() for bar in bars)
    x = Ticks(names=[*enumerate(bar.name for bar in bars)], limits=(-0.6, len(bars) - 0.4), slanted=slanted)
    panels = [_panel(bars, name, axis, x) for name in names]
    figure = panels_figure(
        panels, high=HIGH, low=HIGH, left=LEFT, width=width, title=title, notes=_note(bars, caption)
    )
    for axes, name in zip(figure.axes, names, strict=True):
        _write_unknown(axes, *_numbers(bars, name))
    return figure


def _numbers(bars: Sequence[CheckpointBar], name: str) -> tuple[Values, Values]:
    values, errors = np.array([bar.values.get(name, (math.nan, math.nan)) for bar in bars]).T
    return values, errors


def _panel(bars: Sequence[CheckpointBar], name: str, axis: str, x: Ticks) -> Panel:
    drawn = Bars(np.arange(float(len(bars))), *_numbers(bars, name))
    return Panel([drawn, RuledLine(0.0)], axis, name, x=x, y=Ticks(4), grid="")


def _note(bars: Sequence[CheckpointBar], caption: str) -> str:
    pairs = [pair for bar in bars for pair in bar.values.values() if math.isfinite(pair[0])]
    known = [INTERVALS] * any(math.isfinite(error) for _, error in pairs)
    unknown = [f"{NO_ERROR}: not known, from one batch or by this engine"] * any(
        not math.isfinite(error) for _, error in pairs
    )
    return "; ".join([caption] * bool(caption) + known + unknown)


def _write_unknown(axes: Axes, heights: Values, errors: Values) -> None:
    look: dict[str, Any] = {
        "fontsize": style.SMALL_SIZE,
        "ha": "center",
        "va": "bottom",
        "color": style.FAINT_INK,
    }
    for place in np.flatnonzero(~np.isfinite(heights)).tolist():
        axes.text(place, 0, " not finite", rotation=90, **look)
    for place in np.flatnonzero(np.isfinite(heights) & ~np.isfinite(errors)).tolist():
        at = (place, max(heights[place], 0))
        axes.annotate(NO_ERROR, at, (0, 1.5), textcoords="offset points", **look)
