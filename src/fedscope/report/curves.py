"""Curves by round: accuracy and loss, the diagnostics, and the target for which the page counts rounds."""

import math
from collections.abc import Sequence
from typing import Any

from fedscope.checkpoints.registry.best import best as best_of
from fedscope.records.round_quantities import QUANTITIES
from fedscope.records.run_record import RunRecord
from fedscope.report import look
from fedscope.report.look import Chart
from fedscope.report.subjects import Subject, Subjects, run_key

MOST_MARKED = 40  # rounds whose points are drawn as such
MOST_NAMED = 8  # rounds each of which has a tick
EVALUATED = {
    "cld": "the global model",
    "sel": "the mean of the round's clients' models",
    "all": "the mean of all clients' last models",
}


def convergence(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    """Return the charts of accuracy and loss by round; one that no run has a number for is left out."""
    of = " or ".join(dict.fromkeys(EVALUATED[run.stated.eval_model or "cld"] for run in runs))
    shares = [[(round, 100.0 * value) for round, value in accuracies(run)] for run in runs]
    losses = [[(one.round, one.loss) for one in run.metrics if one.loss is not None] for run in runs]
    shown = [who[run_key(run)] for run in runs]
    accuracy = _chart(shown, shares, "accuracy", "accuracy (%)", f"Accuracy of {of}.")
    loss = _chart(shown, losses, "loss", "loss", f"Loss of {of}, on the same samples.")
    return [chart for chart in (accuracy, loss) if chart]


def diagnostics(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    """Return a chart by round of each quantity of the rounds' diagnostics that a run has."""
    shown = [who[run_key(run)] for run in runs]
    charts = []
    for one in QUANTITIES:
        curves = [
            [(line.round, one.scale * value) for line in run.metrics if (value := one.at(line)) is not None]
            for run in runs
        ]
        caption = f"{one.meaning[0].upper()}{one.meaning[1:].replace('`', '')}."
        from_zero = {"yaxis": {"rangemode": "tozero"}} if one.share else {}
        charts.append(_chart(shown, curves, one.name, one.axis, caption, title=one.label, **from_zero))
    return [chart for chart in charts if chart]


def accuracies(run: RunRecord) -> list[tuple[int, float]]:
    """Return (round, accuracy) of the rounds that have one."""
    return [(one.round, one.accuracy) for one in run.metrics if one.accuracy is not None]


def best(run: RunRecord) -> tuple[int, float] | None:
    """Return the round that the run chose as its best, and its accuracy; nothing where no round has one."""
    found = best_of(run.metrics)
    return None if found is None or found.accuracy is None else (found.round, found.accuracy)


def target(runs: Sequence[RunRecord]) -> float | None:
    """Return the accuracy to count rounds to, in per cent: the runs' own, or a whole one that all reached."""
    own = {run.stated.target for run in runs if run.stated.target is not None}
    if len(own) == 1:
        return round(100 * own.pop(), 10)
    reached = [found[1] for found in map(best, runs) if found]
    return max(1, math.floor(100 * min(reached))) if reached else None


def _chart(
    shown: Sequence[Subject],
    curves: Sequence[Sequence[tuple[int, float]]],
    name: str,
    y: str,
    caption: str,
    title: str = "",
    **changes: Any,
) -> Chart | None:
    traces, ends, last = [], [], 0
    for subject, points in zip(shown, curves, strict=True):
        if not points:
            continue
        rounds, values = zip(*points, strict=True)
        traces.append(look.curve(subject, rounds, values, marked=len(points) <= MOST_MARKED))
        last = max(last, *rounds)
        ends.append(f"{subject.name} ends at {values[-1]:.4g} in round {rounds[-1]}")
    if not traces:
        return None
    layout = look.layout("round", y, hovermode="x unified", xaxis=ticks(last), **changes)
    title = title or name
    alt = f"{title[0].upper()}{title[1:]} by round: {'; '.join(ends)}."
    return Chart(f"curve-{name}", alt, caption, traces, layout)


def ticks(last: int) -> dict[str, Any]:
    """Return the ticks of an axis of rounds up to ``last``.

    By itself plotly halves the steps of a short run, and rounds the halves to rounds.
    """
    return {"dtick": 1} if last <= MOST_NAMED else {"tickformat": "d"}


def series(runs: Sequence[RunRecord], who: Subjects) -> list[dict[str, Any]]:
    """Return what the page counts rounds from."""
    return [{"name": who[run_key(run)].name, "accuracy": accuracies(run)} for run in runs]
