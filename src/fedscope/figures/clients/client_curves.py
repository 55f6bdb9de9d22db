"""Clients along the rounds of runs: the means of gaps, alignment, cost of averaging, H_N and H_D."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.matrices import lacking
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel, reach
from fedscope.figures.text.client_rounds import by_run, measured
from fedscope.records.client_quantities import ClientQuantity, RoundsKind
from fedscope.records.clients_record import SYMBOLS, Amount, ClientsRecord, Quantity
from fedscope.records.estimates import Entry
from fedscope.records.run_curves import RunCurves

PARTS: Mapping[RoundsKind, tuple[str, str]] = {  # what is lacking, and the --only that measures it
    "gap": ("loss, λ_max or trace", "loss,lambda_max,trace"),
    "alignment": ("alignment", "alignment"),
    "drift": ("cost of averaging", "drift"),
    "diagonals": ("diagonals", "diagonals"),
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
