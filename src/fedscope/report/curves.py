"""Convergence: accuracy and loss by round, and the rounds that a run took to a target."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedscope.checkpoints.registry.best import best as best_round
from fedscope.report import look
from fedscope.report.look import Chart
from fedscope.report.subjects import Key, Record, Subject, run_key, stated

Subjects = Mapping[Key, Subject]
MOST_MARKED = 40  # rounds whose points are drawn as such
MOST_NAMED = 8  # rounds each of which has a tick
EVALUATED = {
    "cld": "the global model",
    "sel": "the mean of the round's clients' models",
    "all": "the mean of all clients' last models",
}


def convergence(runs: Sequence[Record], who: Subjects) -> list[Chart]:
    """Return the charts of accuracy and loss by round; one that no run has a number for is left out."""
    of = " or ".join(dict.fromkeys(EVALUATED[stated(run).get("eval_model") or "cld"] for run in runs))
    accuracy = _chart(runs, who, "accuracy", "Accuracy by round", "accuracy (%)", 100.0, f"Accuracy of {of}.")
    loss = _chart(runs, who, "loss", "Loss by round", "loss", 1.0, f"Loss of {of}, on the same samples.")
    return [chart for chart in (accuracy, loss) if chart]


def accuracies(run: Record) -> list[tuple[int, float]]:
    """Return (round, accuracy) of the rounds that have one."""
    return [(m["round"], m["accuracy"]) for m in run["metrics"] if m.get("accuracy") is not None]


def best(run: Record) -> tuple[int, float] | None:
    """Return the round that the run chose as its best, and its accuracy; nothing where no round has one."""
    found = best_round(run["metrics"])
    return (found["round"], found["accuracy"]) if found else None


def target(runs: Sequence[Record]) -> int | None:
    """Return the accuracy in whole per cent to count rounds to: the runs' own, or what all reached."""
    own = {float(found) for run in runs if (found := stated(run).get("target")) is not None}
    if len(own) == 1:
        return max(1, round(100 * own.pop()))
    reached = [found[1] for found in map(best, runs) if found]
    return max(1, math.floor(100 * min(reached))) if reached else None


def rounds_to(run: Record, accuracy: float) -> int | None:
    """Return the first round with at least this accuracy."""
    return next((round for round, value in accuracies(run) if value >= accuracy), None)


def _chart(
    runs: Sequence[Record], who: Subjects, key: str, alt: str, y: str, scale: float, caption: str
) -> Chart | None:
    traces, ends = [], []
    for run in runs:
        points = [(m["round"], scale * m[key]) for m in run["metrics"] if m.get(key) is not None]
        if not points:
            continue
        subject = who[run_key(run)]
        rounds, values = zip(*points, strict=True)
        traces.append(
            {
                **look.of(subject),
                "type": "scatter",
                "mode": "lines+markers" if len(points) <= MOST_MARKED else "lines",
                "x": rounds,
                "y": look.numbers(values),
                "line": look.line(subject),
                "marker": {"symbol": subject.symbol, "size": 6},
                "hovertemplate": "%{y:.4g}",
            }
        )
        ends.append(f"{subject.name} ends at {values[-1]:.4g} in round {rounds[-1]}")
    if not traces:
        return None
    last = max(max(trace["x"]) for trace in traces)
    # by itself plotly halves the steps of a short run, and rounds the halves to rounds
    ticks = {"dtick": 1} if last <= MOST_NAMED else {"tickformat": "d"}
    layout = look.layout("round", y, hovermode="x unified", xaxis=ticks)
    return Chart(f"curve-{key}", f"{alt}: {'; '.join(ends)}.", caption, traces, layout)


def series(runs: Sequence[Record], who: Subjects) -> list[dict[str, Any]]:
    """Return what the page counts rounds from."""
    return [{"name": who[run_key(run)].name, "accuracy": accuracies(run)} for run in runs]
