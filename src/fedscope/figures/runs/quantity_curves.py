"""Quantities by round below the accuracy: curvature, its edge of stability, and what rounds record."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel, reach, reach_of, reach_over_seeds
from fedscope.figures.runs.groups import SeedGroup, accuracy_line, rounds_of, spread_of
from fedscope.records.quantities import LAMBDA_MAX, SIZES, OfRecord
from fedscope.records.round_quantities import QUANTITIES, Family, RoundQuantity
from fedscope.records.run_curves import CurvatureEntry, RunCurves, curvature_rounds, most_rounds
from fedscope.records.stability import stable_under

Unit = Callable[[RunCurves, int], float]
Rounds = Callable[[RunCurves], tuple[int, list[CurvatureEntry]]]


def curvature_figure(found: Sequence[SeedGroup], title: str) -> Figure:
    panels = [_curvature_panel(found, one.symbol, one.of) for one in SIZES]
    return _below_accuracy(found, [panel for panel in panels if panel.lines], title)


def stability_figure(found: Sequence[SeedGroup], title: str) -> Figure:
    """Draw λ_max in units of the largest that local steps are stable at, below accuracy.

    And, where it was measured of two rounds or more, that of P⁻¹H in units of the largest that the steps of
    an adaptive server are stable at.
    """
    ratio = _curvature_panel(found, "λ_max / stable", LAMBDA_MAX.of, of=_stable)
    edge = Line("edge of stability", np.zeros(1), np.ones(1), level=True)
    panels = [Panel([*ratio.lines, edge], "round", "λ_max / stable")]
    lines = [(group, line) for group in found if (line := _server_line(group))]
    if not lines:
        return _below_accuracy(found, panels, title)
    panels.append(Panel([*(line for _, line in lines), edge], "round", "λ_max(P⁻¹H) / stable"))
    return _below_accuracy(found, panels, title, servers=[group for group, _ in lines])


def _server_line(group: SeedGroup) -> Line | None:
    """Return the server's ratio by round; None unless all runs of a group have it of two rounds or more."""
    measured = [_of_server(record)[1] for record in group.records]
    shared = _shared_rounds(measured)
    if len(shared) < 2:
        return None
    chosen = [[one.preconditioned for one in rounds if one.round in shared] for rounds in measured]
    return _mean_line(group, shared, [[(one.value, reach_of(one)) for one in row if one] for row in chosen])


def _of_server(record: RunCurves) -> tuple[int, list[CurvatureEntry]]:
    return most_rounds([one for one in record.curvature if one.preconditioned], record.at.average)


def _stable(record: RunCurves, round: int) -> float:
    rates = dict(zip(record.metrics.round, record.metrics.lr, strict=False))
    found = stable_under(record.settings, rates.get(round))
    if found is None:
        raise UserError(f"the learning rate of {record.run} is not known: a run from elsewhere has none")
    return found


def _below_accuracy(
    found: Sequence[SeedGroup], panels: Sequence[Panel], title: str, servers: Sequence[SeedGroup] = ()
) -> Figure:
    """Draw panels of curvature by round below one of the accuracy; of ``servers`` P⁻¹H is among them."""
    own, apart = _samples(found), _samples(servers, _of_server) if servers else None
    text = "" if apart in (None, own) else f", of P⁻¹H on {apart:,}"
    caption = f"curvature on {own:,} training samples{text}, ± 95 % intervals"
    notes = "; ".join(filter(None, [caption, spread_of(found)]))
    return panels_figure([_accuracy(found), *panels], title=title, caption=notes)


def _accuracy(found: Sequence[SeedGroup]) -> Panel:
    return Panel([accuracy_line(group, rounds_of(group)) for group in found], "round", "test accuracy (%)")


def _samples(found: Sequence[SeedGroup], measured: Rounds = curvature_rounds) -> int:
    samples = {measured(record)[0] for group in found for record in group.records}
    if len(samples) > 1:
        numbers = ", ".join(f"{number:,}" for number in sorted(samples))
        raise UserError(f"the rounds are measured on {numbers} samples: measure all with one --samples")
    return samples.pop()


def _curvature_panel(
    found: Sequence[SeedGroup], name: str, pick: OfRecord, of: Unit = lambda *_: 1.0
) -> Panel:
    return Panel([line for group in found if (line := _curvature_line(group, pick, of))], "round", name)


def _curvature_line(group: SeedGroup, pick: OfRecord, of: Unit) -> Line | None:
    """Return a quantity over the rounds that have it in all runs of a group; None where none has."""
    measured = [[one for one in curvature_rounds(record)[1] if pick(one)] for record in group.records]
    shared, rows = _shared_rounds(measured), []
    if not shared:
        return None
    for record, rounds in zip(group.records, measured, strict=True):
        units = [of(record, round) for round in shared]
        chosen = [found for one in rounds if one.round in shared and (found := pick(one))]
        rows.append([(one.value / u, reach_of(one) / u) for one, u in zip(chosen, units, strict=True)])
    return _mean_line(group, shared, rows)


def _shared_rounds(measured: Sequence[Sequence[CurvatureEntry]]) -> list[int]:
    return sorted(set.intersection(*({one.round for one in rounds} for rounds in measured)))


def _mean_line(
    group: SeedGroup, rounds: Sequence[int], rows: Sequence[Sequence[tuple[float, float]]]
) -> Line:
    """Return the mean over the runs; its band is the interval over the runs, of one run its own."""
    values = np.array(rows)
    band = values[..., 1][0] if len(values) == 1 else reach_over_seeds(values[..., 0])
    return Line(group.name, np.array(rounds, float), values[..., 0].mean(0), band, family=group.family)


def diagnostics_figure(kind: Family, found: Sequence[SeedGroup], title: str) -> Figure:
    panels = [_accuracy(found)]
    for quantity in (one for one in QUANTITIES if one.family == kind):
        lines = [_recorded_line(group, quantity) for group in found]
        known = [line for line in lines if line]
        if known:
            panels.append(Panel(known, "round", quantity.axis, from_zero=quantity.share))
    if len(panels) == 1:
        raise UserError(
            f"the metrics of {found[0].records[0].run} have nothing of --kind {kind}: "
            f"{_why_none(found[0].records[0], kind)}"
        )
    caption = "; ".join(filter(None, [_errors_of(found, kind), spread_of(found)]))
    return panels_figure(panels, title=title, caption=caption)


def _errors_of(found: Sequence[SeedGroup], kind: Family) -> str:
    alone = [group.records[0].metrics.diagnostics for group in found if len(group.records) == 1]
    names = [
        one.label for one in QUANTITIES
        if one.family == kind and any(one.error_name in columns for columns in alone)
    ]  # fmt: skip
    return f"{', '.join(names)} of one run: ± 95 % intervals over the probes" if names else ""


def _why_none(record: RunCurves, kind: Family) -> str:
    losses = record.metrics.train_loss
    if losses and not np.isfinite(losses[-1]):
        return (
            f"it diverged in round {record.metrics.round[-1]}, before any round whose quantities are finite; "
            "train anew with a smaller --lr"
        )
    return "train with --probe-curvature K" if kind == "probes" else "a run of an older fedscope has none"


def _recorded_line(group: SeedGroup, quantity: RoundQuantity) -> Line | None:
    """Return a quantity's mean over seeds in the rounds in which all have it; None where there is none.

    The band is the 95 % interval over seeds, of one seed the quantity's own where it has an error.
    """
    columns = [record.metrics.diagnostics.get(quantity.name, ()) for record in group.records]
    shortest = min(map(len, columns))
    values = quantity.scale * np.array([column[:shortest] for column in columns], dtype=np.float64)
    there = np.isfinite(values).sum(0) == len(values)
    if not there.any():
        return None
    rounds = np.array(group.records[0].metrics.round[: len(there)], dtype=np.float64)[there]
    values = values[:, there]
    error = group.records[0].metrics.diagnostics.get(quantity.error_name)
    band = reach_over_seeds(values)
    if error and band is None:
        band = reach(1.0) * np.array(error, dtype=np.float64)[: len(there)][there]
    return Line(group.name, rounds, values.mean(0), band, family=group.family, shaded=True)
