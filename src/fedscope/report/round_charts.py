"""Training on the page: tables of the runs; curves by round of accuracy, loss, diagnostics, curvature."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from fedscope.checkpoints.registry.best import best as best_of
from fedscope.checkpoints.registry.best import chosen_on
from fedscope.figures.panels import Line, Panel, RuledLine, reach_of
from fedscope.figures.text.labels import data_name
from fedscope.records.estimates import Entry
from fedscope.records.quantities import SIZES
from fedscope.records.round_quantities import QUANTITIES
from fedscope.records.run_curves import CurvatureEntry, most_rounds
from fedscope.records.run_record import RunRecord, Stated
from fedscope.records.stability import stable_under
from fedscope.report.plotly_panels import Chart, rounds_chart
from fedscope.report.sortable_table import MISSING, UNSAID, Cell, SortableTable
from fedscope.report.subjects import Subject, Subjects, run_key

EVALUATED = {
    "cld": "the global model",
    "sel": "the mean of the round's clients' models",
    "all": "the mean of all clients' last models",
}

Points = Sequence[tuple[int, float, float]]  # round, value, half its 95 % interval (NaN: none)
OfRuns = Sequence[tuple[RunRecord, Points]]


def convergence(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    of = " or ".join(dict.fromkeys(EVALUATED[run.stated.eval_model or "cld"] for run in runs))
    shares = [(run, [(round, 100.0 * value, math.nan) for round, value in accuracies(run)]) for run in runs]
    losses = [
        (run, [(one.round, one.loss, math.nan) for one in run.metrics if one.loss is not None])
        for run in runs
    ]
    return [
        *_chart(who, shares, "accuracy", "accuracy (%)", f"Accuracy of {of}.", title="accuracy"),
        *_chart(who, losses, "loss", "loss", f"Loss of {of}, on the same samples."),
    ]


def diagnostics(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    charts: list[Chart] = []
    for one in QUANTITIES:
        curves = [
            (run, [
                (line.round, one.scale * value, math.nan)
                for line in run.metrics if (value := one.at(line)) is not None
            ]) for run in runs
        ]  # fmt: skip
        caption = f"{one.meaning[0].upper()}{one.meaning[1:].replace('`', '')}."
        charts += _chart(who, curves, one.name, one.axis, caption, title=one.label, from_zero=one.share)
    return charts


def curvature_by_round(runs: Sequence[RunRecord], who: Subjects) -> list[Chart]:
    """Return a chart for each quantity; none where no run has two rounds measured on as many samples."""
    found = [(run, *most_rounds(run.curvature)) for run in runs]
    shown = [(run, samples, rounds) for run, samples, rounds in found if len(rounds) > 1]
    if not shown:
        return []
    numbers = " or ".join(f"{number:,}" for number in sorted({samples for _, samples, _ in shown}))
    said = f"On {numbers} training samples; bands: 95 % intervals."
    charts: list[Chart] = []
    for size in SIZES:
        lines = [
            (run, [_point(one.round, entry) for one in rounds if (entry := size.of(one))])
            for run, _, rounds in shown
        ]
        told = f"{size.symbol} of the models that each run kept. {said}"
        charts += _chart(who, lines, size.name, size.symbol, told)
    edges = [(run, _in_edges(run, rounds)) for run, _, rounds in shown]
    caption = (
        "λ_max in units of the largest λ at which a local step of the run does not diverge on a "
        f"quadratic (Cohen et al. 2021). {said}"
    )
    charts += _chart(who, edges, "stability", "λ_max / stable", caption, edge=True)
    servers = [(run, [*_of_server(run)]) for run in runs]
    caption = (
        "λ_max of P⁻¹H of an adaptive server, P = diag(√s + ε), in units of the largest at which its "
        "steps do not diverge on a quadratic (Cohen et al. 2022). Bands: 95 % intervals."
    )
    several = [(run, points) for run, points in servers if len(points) > 1]
    return [
        *charts,
        *_chart(who, several, "server-stability", "λ_max(P⁻¹H) / stable", caption, edge=True),
    ]


def _point(round: int, entry: Entry, unit: float = 1.0) -> tuple[int, float, float]:
    return round, entry.value / unit, reach_of(entry) / unit


def _of_server(run: RunRecord) -> Iterator[tuple[int, float, float]]:
    _, rounds = most_rounds([one for one in run.curvature if one.preconditioned])
    return (_point(one.round, one.preconditioned) for one in rounds if one.preconditioned)


def _in_edges(run: RunRecord, rounds: Sequence[CurvatureEntry]) -> Points:
    """Return λ_max in units of the largest stable one; nothing where the run does not say its steps."""
    settings, rates = run.manifest.stated(), {one.round: one.lr for one in run.metrics}
    stable = [stable_under(settings, rates.get(one.round)) for one in rounds]
    if None in stable:
        return []
    return [_point(one.round, one.lambda_max, unit or 1.0) for one, unit in zip(rounds, stable, strict=True)]


def _chart(
    who: Subjects,
    curves: OfRuns,
    ident: str,
    y: str,
    caption: str,
    *,
    title: str = "",
    from_zero: bool = False,
    edge: bool = False,
) -> list[Chart]:
    lines, looks = [], {}
    for run, points in curves:
        if points:
            subject = who[run_key(run)]
            rounds, values, errors = np.array(points, dtype=np.float64).T
            band = errors if np.isfinite(errors).any() else None
            lines.append(Line(subject.name, rounds, values, band))
            looks[subject.name] = subject
    if not lines:
        return []
    panel = Panel([*lines, *[RuledLine(1.0)] * edge], "round", y, from_zero=from_zero)
    return [rounds_chart(ident, panel, looks, caption, title)]


def accuracies(run: RunRecord) -> list[tuple[int, float]]:
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


def runs_table(runs: Sequence[RunRecord], who: Subjects) -> SortableTable:
    rows = []
    for run in runs:
        manifest, settings, subject = run.manifest, run.stated, who[run_key(run)]
        words = (
            manifest.name,
            manifest.created[:10],
            data_name(manifest.data.name),
            manifest.model.name,
            partition_of(settings),
            _work(settings),
        )
        seed = settings.seed
        values = (
            Cell(subject.name, subject.name, subject.color),
            *(Cell(text or UNSAID, text) for text in words),
            Cell(UNSAID if seed is None else str(seed), seed),
        )
        rows.append(values)
    columns = ("method", "run", "started", "data set", "model", "partition", "local work", "seed")
    return SortableTable("runs-table", "Settings", columns, tuple(rows))


def training_table(runs: Sequence[RunRecord], who: Subjects) -> SortableTable:
    columns = ("method", "rounds", "final accuracy (%)", "best accuracy (%)", "final loss")
    rows = tuple(_reached(run, who[run_key(run)]) for run in runs)
    return SortableTable("training-table", "Training", columns, rows)


def final_accuracy(run: RunRecord | None) -> Cell:
    reached = accuracies(run) if run else []
    if not reached:
        return MISSING
    return Cell(f"{100 * reached[-1][1]:.2f}", reached[-1][1])


def partition_of(settings: Stated) -> str | None:
    if not settings.partition or settings.partition == "unknown":
        return None
    of = f", α {settings.alpha:g}" if settings.alpha is not None else ""
    of += f", {settings.shards} shards each" if settings.shards else ""
    of += f", {settings.classes_per_client} classes each" if settings.classes_per_client else ""
    people = f", {settings.clients} clients" if settings.clients else ""
    share = settings.participation
    chosen = f", {100 * share:g}\u00a0% per round" if share else ""
    return f"{settings.partition}{of}{people}{chosen}"


def _reached(run: RunRecord, subject: Subject) -> tuple[Cell, ...]:
    rounds = max((one.round for one in run.metrics), default=0)
    losses = [one.loss for one in run.metrics if one.loss is not None]
    top = best(run)
    return (
        Cell(subject.name, subject.name, subject.color),
        Cell(f"{rounds} (diverged)" if run.manifest.diverged else str(rounds), rounds),
        final_accuracy(run),
        Cell(f"{100 * top[1]:.2f} (round {top[0]}{_chosen(run)})", top[1]) if top else MISSING,
        Cell(f"{losses[-1]:.4f}", losses[-1]) if losses else MISSING,
    )


def _chosen(run: RunRecord) -> str:
    split = chosen_on(run.manifest.stated())
    return f", chosen on {split}" if split else ""


def _work(settings: Stated) -> str | None:
    rounds, epochs, size, rate = settings.rounds, settings.epochs, settings.batch_size, settings.lr
    if rounds is None or epochs is None or size is None or rate is None:
        return None
    local = f"epochs {epochs}" if settings.local_steps is None else f"steps {settings.local_steps}"
    if settings.stragglers:
        local += f" ({100 * settings.stragglers:g}\u00a0% stragglers)"
    optimizer = "" if settings.optimizer is None else f", {settings.optimizer}"
    return f"rounds {rounds}, {local}, batch size {size}, rate {rate:g}{optimizer}"
