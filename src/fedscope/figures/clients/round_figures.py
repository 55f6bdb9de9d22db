"""Figures of the clients of one round, and of their means along the rounds of runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.digits import format_estimate
from fedscope.figures.figure_kinds import ClientsKind, check_kind
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Bars, Dots, Line, Panel, Part, RuledLine, Stems, Ticks, Values, reach
from fedscope.figures.spectrum.matrices import lacking, matrix_figure
from fedscope.figures.text.client_tables import by_run, measured
from fedscope.figures.text.labels import label
from fedscope.records.client_quantities import TERMS, ClientQuantity, RoundsKind
from fedscope.records.clients_record import SYMBOLS, Amount, ClientsRecord, Flatness, Function, Quantity
from fedscope.records.estimates import Entry
from fedscope.records.run_curves import RunCurves

MOST_CLIENTS = 100
OFFSETS: Mapping[Function, float] = {"own": -0.16, "global": 0.16}
LOSSES: Mapping[Function, str] = {"own": "own loss f_k", "global": "global loss F"}
HIGH, LEFT = 1.15, 0.52  # inches
PARTS: Mapping[RoundsKind, tuple[str, str]] = {  # what is lacking, and the --only that measures it
    "gap": ("loss, λ_max or trace", "loss,lambda_max,trace"),
    "alignment": ("alignment", "alignment"),
    "drift": ("cost of averaging", "drift"),
    "diagonals": ("diagonals", "diagonals"),
}


def draw(
    records: Sequence[ClientsRecord], kind: ClientsKind = "gap", *, width: float = style.SINGLE_COLUMN
) -> Figure:
    if len(records) != 1:
        raise UserError(f"a figure of clients is of one round, not {len(records)}: make several figures")
    (record,) = records
    check_kind(kind, ClientsKind)
    if kind == "matrix":
        return matrix_figure(record, width=width)
    if len(record.clients) > MOST_CLIENTS:
        raise UserError(f"one figure shows at most {MOST_CLIENTS} clients, not {len(record.clients)}")
    panels, notes = _PANELS[kind](record)
    return panels_figure(
        panels, columns=1 if width < style.WIDE_COLUMN else min(len(panels), 3), shared=False, keys=None,
        width=width, high=HIGH, low=HIGH, left=LEFT, title=label(record.checkpoint), notes=notes,
    )  # fmt: skip


def frame_figures(
    records: Sequence[ClientsRecord], kind: ClientsKind = "gap", *, width: float = style.SINGLE_COLUMN
) -> list[Figure]:
    """Return the picture of each round in order, all of one size and with the axes of all."""
    found = sorted(records, key=lambda one: one.checkpoint.round or 0)
    if len({record.checkpoint.run for record in found}) > 1:
        raise UserError("a film of clients is of one run: make several films")
    counts = {len(record.clients) for record in found}
    if len(counts) > 1:
        raise UserError(
            f"the rounds have {' and '.join(map(str, sorted(counts)))} clients, and a film needs as many in "
            "each: choose --rounds, or draw curves into a .png"
        )
    if kind == "matrix":
        figures = [matrix_figure(record, width=width, among=found) for record in found]
    else:
        figures = [draw([record], kind, width=width) for record in found]
        _share_heights(figures)
    if len({(*figure.get_size_inches(), len(figure.axes)) for figure in figures}) > 1:
        raise UserError("the rounds have not the same parts measured: name them with --only")
    return figures


def _share_heights(figures: Sequence[Figure]) -> None:
    for same in zip(*(figure.axes for figure in figures), strict=False):
        ends = [axes.get_ylim() for axes in same]
        for axes in same:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))


def _panel(record: ClientsRecord, parts: Sequence[Part], name: str) -> Panel:
    names = [*enumerate(map(str, record.numbers))]
    x = Ticks(names=names, limits=(-0.6, len(names) - 0.4))
    return Panel(parts, "client", name, x=x, y=Ticks(5), grid="")


def gap_panel(record: ClientsRecord, one: Flatness) -> Panel:
    """Return two dumbbells for each client, of its own function and of the global one.

    Each runs from the client's weights (filled) to the global ones (hollow).
    """
    parts: list[Part] = []
    for place, (function, name) in enumerate(LOSSES.items()):
        start, end = one.cell(function, "own"), one.cell(function, "global")
        assert start
        assert end
        x, color = np.arange(len(start.clients)) + OFFSETS[function], style.method_colors(2)[place]
        first, last = _values(start.clients), _values(end.clients)
        parts.append(Stems(x, first, last, color, width=0.6, alpha=0.4))
        look: dict[str, Any] = {"marker": style.MARKERS[place], "color": color}
        parts.append(Dots(x, first, up=_reaches(start.clients), label=name, **look))
        parts.append(Dots(x, last, up=_reaches(end.clients), filled=False, **look))
    if min(float(np.min(part.y)) for part in parts if isinstance(part, Dots)) < 0:
        parts.append(RuledLine(0.0, look={"color": "0.85", "linewidth": 0.5, "zorder": 0}))
    return _panel(record, parts, SYMBOLS[one.quantity])


def _gaps(record: ClientsRecord) -> tuple[list[Panel], str]:
    if not record.flatness:
        lacking(record, "loss, λ_max or trace", "loss,lambda_max,trace")
    notes = (
        "filled: at the client's weights wₖ, hollow: at the global weights w̄; the line between is the gap; "
        "bars: 95 % of samples and probes"
    )
    return [gap_panel(record, one) for one in record.flatness], notes


def _alignment(record: ClientsRecord) -> tuple[list[Panel], str]:
    """Return for each client's own and for the global Hessian ΔᵀHΔ/‖Δ‖², and the top space's share."""
    found = record.alignment
    if not found:
        lacking(record, "alignment", "alignment")
    sides = {
        "own Hessian": [one.own for one in found.clients],
        "global Hessian": [one.overall for one in found.clients],
    }
    quotients = {name: [one.rayleigh for one in each] for name, each in sides.items()}
    shares = {name: [one.share for one in each if one.share] for name, each in sides.items()}
    start = "at the round's start" if found.anchor == "start" else "of the global model"
    notes = (
        f"Δ: a client's weights less those {start}; H at the global model; bars: 95 % over the samples; a "
        f"random direction has a share of {format_estimate(found.random)}"
    )
    panels = [
        _panel(record, _beside(quotients), r"$\Delta^{\!\top}\! H\Delta/\|\Delta\|^2$"),
        _panel(record, _beside(shares), f"share in the top {found.k}"),
    ]
    return panels, notes


def _drift(record: ClientsRecord) -> tuple[list[Panel], str]:
    """Return for each client the terms of G(w_k) − G(w̄), of the global and of its own loss."""
    found = record.averaging
    if not found:
        lacking(record, "cost of averaging", "drift")
    panels = []
    for name, one in ((LOSSES["global"], found.overall), (LOSSES["own"], found.own)):
        amounts = {said: [getattr(client, term) for client in one.clients] for term, said in TERMS.items()}
        means = [
            RuledLine(
                getattr(one.mean, term).value, look={**style.curve_look(place), "linewidth": 0.7, **_DASHED}
            )
            for place, term in enumerate(TERMS)
        ]
        panels.append(_panel(record, [*_beside(amounts), *means], name))
    return panels, (
        "G(wₖ) − G(w̄) and the terms of its expansion at w̄ = Σ pₖwₖ; dashed: the means Σ pₖ; bars: 95 %"
    )


_DASHED = {"linewidth": 0.7, "linestyle": style.LINESTYLES[1]}


def _beside(series: Mapping[str, Sequence[Amount]]) -> list[Part]:
    colors, width = style.method_colors(len(series)), 0.76 / len(series)
    parts: list[Part] = [RuledLine(0.0, look={"color": "0.5", "linewidth": 0.5})]
    for place, (name, amounts) in enumerate(series.items()):
        at = np.arange(len(amounts)) + (place - (len(series) - 1) / 2) * width
        bars = Bars(at, _values(amounts), _reaches(amounts), name, colors[place], width)
        parts.append(bars)
    return parts


def _reaches(amounts: Sequence[Amount]) -> Values:
    found = np.zeros((2, len(amounts)))
    for i, one in enumerate(amounts):
        if one.interval is not None:
            low, high = one.interval
            found[:, i] = max(0.0, one.value - low), max(0.0, high - one.value)
    return found


def _values(amounts: Sequence[Amount]) -> Values:
    return np.array([one.value for one in amounts])


_PANELS: Mapping[ClientsKind, Callable[[ClientsRecord], tuple[list[Panel], str]]] = {
    "gap": _gaps,
    "alignment": _alignment,
    "drift": _drift,
}


def rounds_figure(
    records: Sequence[ClientsRecord],
    runs: Sequence[RunCurves],
    kind: RoundsKind = "gap",
    *,
    width: float = style.SINGLE_COLUMN,
) -> Figure:
    """Draw the means Σ p_k over the clients by round, with 95 % intervals as bands, below test accuracy."""
    found = by_run(records)
    if not found or min(map(len, found.values())) < 2:
        raise UserError("curves are of two rounds or more of each run: add --rounds FIRST:LAST:STEP")
    made = panels_of(found, kind)
    if not made:
        lacking(records[0], *PARTS[kind])
    names = {f"{run.run}": run for run in runs}
    accuracy = [line for name in found if name in names and (line := _accuracy(names[name]))]
    above = [Panel(accuracy, "round", "test accuracy (%)")] if accuracy else []
    return panels_figure([*above, *made], caption=_caption(records), width=width)


def round_panel(records: Sequence[ClientsRecord], quantity: Quantity) -> Panel:
    if not any(record.of(quantity) for record in records):
        lacking(records[0], quantity, quantity)
    panels = {panel.y_label: panel for panel in panels_of({"": records}, "gap")}
    return panels[f"{SYMBOLS[quantity]} gap"]


def panels_of(found: Mapping[str, Sequence[ClientsRecord]], kind: RoundsKind) -> list[Panel]:
    """Return the panels of a kind by the rounds of runs, as far as any record has its numbers.

    Of one run every panel has the lines of a sum and its parts; of several, a panel for each of the main
    numbers has a line for each run.
    """
    curves = measured([one for records in found.values() for one in records], kind)
    if len(found) > 1:
        return [
            Panel([_line(run, own, curve) for run, own in found.items()], "round", curve.name)
            for curve in curves if curve.main
        ]  # fmt: skip
    (records,) = found.values()
    panels: dict[str, list[Line]] = {}
    for curve in curves:
        panels.setdefault(curve.panel, []).append(_line(curve.line, records, curve))
    return [Panel(lines, "round", name) for name, lines in panels.items()]


def _line(label: str, records: Sequence[ClientsRecord], curve: ClientQuantity) -> Line:
    """Return a number by round: of several records of a round the first that has it."""
    by_round: dict[int, Entry | None] = {}
    for record in records:
        round = record.checkpoint.round or 0
        by_round[round] = by_round.get(round) or curve.of(record)
    found = [by_round[round] for round in sorted(by_round)]
    values = [one.value if one else np.nan for one in found]
    band = np.array([_band(one) if one else (np.nan, np.nan) for one in found]).T
    return Line(label, np.array(sorted(by_round), dtype=np.float64), np.array(values), band, shaded=True)


def _band(one: Entry) -> tuple[float, float]:
    """How far the 95 % interval reaches below and above; one without bias may leave out the value."""
    if isinstance(one, Amount) and one.interval is not None:
        low, high = one.interval
        return one.value - low, high - one.value
    half = reach(*one.error) if one.error else np.nan
    return half, half


def _accuracy(run: RunCurves) -> Line | None:
    values = 100 * np.array(run.metrics.accuracy, dtype=np.float64)
    if not np.isfinite(values).any():
        return None
    return Line(run.run, np.array(run.metrics.round, dtype=np.float64), values).connected


def _caption(records: Sequence[ClientsRecord]) -> str:
    samples = sorted({record.problem.samples for record in records})
    numbers = " or ".join(f"{number:,}" for number in samples)
    return f"means over the clients, weighted by p_k; {numbers} samples of all; bands: 95 % intervals"
