"""The tables of the runs: their settings, and the results of their training."""

from collections.abc import Sequence

from fedscope.checkpoints.registry.best import chosen_on
from fedscope.figures.text.labels import data_name
from fedscope.records.run_record import RunRecord, Stated
from fedscope.report.round_charts import accuracies, best
from fedscope.report.sortable_table import MISSING, UNSAID, Cell, SortableTable
from fedscope.report.subjects import Subject, Subjects, run_key


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
