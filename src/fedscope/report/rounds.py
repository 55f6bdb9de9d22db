"""Curvature by round: λ_max and trace of the models that each run kept, and λ_max beside its stable size.

Charts whose name begins with "curve-" follow the page's slider of rounds.
"""

from collections.abc import Sequence
from typing import Any

from fedscope.figures.intervals import reach_of
from fedscope.figures.numbers import format_estimate
from fedscope.records.run_curves import CURVATURE, CurvatureEntry, most_rounds
from fedscope.records.run_record import RunRecord
from fedscope.records.stability import stable_under
from fedscope.report import look
from fedscope.report.curves import ticks
from fedscope.report.look import Chart
from fedscope.report.subjects import Subject, Subjects, run_key

Line = tuple[Subject, Sequence[tuple[int, float, float]]]  # round, value, half its 95 % interval
EDGE, SERVER_EDGE = "λ_max / stable", "λ_max(P⁻¹H) / stable"
IDS = {"λ_max": "lambda_max", "trace": "trace", EDGE: "stability", SERVER_EDGE: "server-stability"}
_LEVEL = {
    "type": "line",
    "xref": "paper",
    "x0": 0,
    "x1": 1,
    "y0": 1,
    "y1": 1,
    "line": {"dash": "dot", "color": "#888888"},
}


def curvature_by_round(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    """Return a chart for each quantity; none where no run has two rounds measured on as many samples."""
    found = [(run, *most_rounds(run.curvature)) for run in runs]
    shown = [(run, samples, rounds) for run, samples, rounds in found if len(rounds) > 1]
    if not shown:
        return []
    numbers = " or ".join(f"{number:,}" for number in sorted({samples for _, samples, _ in shown}))
    said = f"On {numbers} training samples; bands: 95 % intervals."
    charts = []
    for name, pick in CURVATURE.items():
        lines: list[Line] = [
            (who[run_key(run)], [(one.round, pick(one).value, reach_of(pick(one))) for one in rounds])
            for run, _, rounds in shown
        ]
        charts.append(chart(IDS[name], name, lines, f"{name} of the models that each run kept. {said}"))
    edges = [line for run, _, rounds in shown if (line := _in_edges(run, rounds, who[run_key(run)]))]
    if edges:
        caption = (
            "λ_max in units of the largest λ at which a local step of the run does not diverge on a "
            f"quadratic (Cohen et al. 2021). {said}"
        )
        charts.append(chart(IDS[EDGE], EDGE, edges, caption, shapes=[_LEVEL]))
    servers = [line for run in runs if (line := _of_server(run, who[run_key(run)]))]
    if servers:
        caption = (
            "λ_max of P⁻¹H of an adaptive server, P = diag(√s + ε), in units of the largest at which its "
            "steps do not diverge on a quadratic (Cohen et al. 2022). Bands: 95 % intervals."
        )
        charts.append(chart(IDS[SERVER_EDGE], SERVER_EDGE, servers, caption, shapes=[_LEVEL]))
    return charts


def _of_server(run: RunRecord, subject: Subject) -> Line | None:
    """Return the ratio of an adaptive server; None where fewer than two rounds have it."""
    _, rounds = most_rounds([one for one in run.curvature if one.preconditioned])
    found = [(one.round, one.preconditioned) for one in rounds]
    points = [(round, ratio.value, reach_of(ratio)) for round, ratio in found if ratio]
    return (subject, points) if len(points) > 1 else None


def _in_edges(run: RunRecord, rounds: Sequence[CurvatureEntry], subject: Subject) -> Line | None:
    """Return λ_max in units of the largest stable one; None where the run does not say its steps."""
    settings, rates = run.manifest.stated(), {one.round: one.lr for one in run.metrics}
    points = []
    for one in rounds:
        stable = stable_under(settings, rates.get(one.round))
        if stable is None:
            return None
        points.append((one.round, one.lambda_max.value / stable, reach_of(one.lambda_max) / stable))
    return subject, points


def chart(ident: str, name: str, lines: Sequence[Line], caption: str, **layout: Any) -> Chart:
    """Return the chart of a quantity by round, a line with its band for each subject."""
    traces, ends, last = [], [], 0
    for subject, points in lines:
        rounds, values, errors = zip(*points, strict=True)
        low, high = ([v + sign * e for v, e in zip(values, errors, strict=True)] for sign in (-1, 1))
        traces += look.band(subject, rounds, look.numbers(low), look.numbers(high))
        traces.append(look.curve(subject, rounds, values))
        last = max(last, *rounds)
        ends.append(f"{subject.name} ends at {format_estimate(values[-1])} in round {rounds[-1]}")
    whole = look.layout("round", name, hovermode="x unified", xaxis=ticks(last), **layout)
    return Chart(f"curve-{ident}", f"{name} by round: {'; '.join(ends)}.", caption, traces, whole)
