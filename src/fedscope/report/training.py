"""The tables of the runs: what each one is, and what its training reached."""

from collections.abc import Mapping, Sequence

from fedscope.checkpoints.registry.best import chosen_on
from fedscope.figures.text.labels import data_name
from fedscope.report.cells import NOT_MEASURED, UNSAID, Cell, SortableTable
from fedscope.report.curves import accuracies, best
from fedscope.report.subjects import Key, Record, Subject, run_key, stated


def runs_table(runs: Sequence[Record], who: Mapping[Key, Subject]) -> SortableTable:
    """Tabulate what each run is: data, network, partition, work, seed, and the day it was started."""
    rows = []
    for run in runs:
        manifest, subject = run["manifest"], who[run_key(run)]
        settings = stated(run)
        words = (
            manifest["name"],
            manifest["created"][:10],
            data_name(manifest["data"]["name"]),
            manifest["model"]["name"],
            partition_of(settings),
            _joined(settings, "rounds {rounds}, epochs {epochs}, batch size {batch_size}, rate {lr:g}"),
        )
        seed = settings.get("seed")
        values = (
            Cell(subject.name, subject.name, subject.color),
            *(Cell(text or UNSAID, text) for text in words),
            Cell(UNSAID if seed is None else str(seed), seed),
        )
        rows.append(values)
    columns = ("method", "run", "started", "data set", "model", "partition", "local work", "seed")
    return SortableTable("runs-table", "Settings", columns, tuple(rows))


def training_table(runs: Sequence[Record], who: Mapping[Key, Subject]) -> SortableTable:
    """Tabulate what the training reached: rounds, accuracy at the end and at best, loss at the end."""
    columns = ("method", "rounds", "final accuracy (%)", "best accuracy (%)", "final loss")
    rows = tuple(_reached(run, who[run_key(run)]) for run in runs)
    return SortableTable("training-table", "Training", columns, rows)


def final_accuracy(run: Record | None) -> Cell:
    """Return the accuracy after the last round that has one, in per cent."""
    reached = accuracies(run) if run else []
    if not reached:
        return Cell(NOT_MEASURED, missing=True)
    return Cell(f"{100 * reached[-1][1]:.2f}", reached[-1][1])


def partition_of(settings: Record) -> str | None:
    """Return the partition in words: its rule, α, the clients and how many of them take part in a round."""
    if not settings.get("partition") or settings["partition"] == "unknown":
        return None
    alpha = f", α {settings['alpha']:g}" if settings.get("alpha") is not None else ""
    people = f", {settings['clients']} clients" if settings.get("clients") else ""
    share = settings.get("participation")
    chosen = f", {100 * share:g}\u00a0% per round" if share else ""
    return f"{settings['partition']}{alpha}{people}{chosen}"


def _reached(run: Record, subject: Subject) -> tuple[Cell, ...]:
    rounds = max((m["round"] for m in run["metrics"]), default=0)
    losses = [m["loss"] for m in run["metrics"] if m.get("loss") is not None]
    none, top = Cell(NOT_MEASURED, missing=True), best(run)
    return (
        Cell(subject.name, subject.name, subject.color),
        Cell(f"{rounds} (diverged)" if run["manifest"].get("diverged") else str(rounds), rounds),
        final_accuracy(run),
        Cell(f"{100 * top[1]:.2f} (round {top[0]}{_chosen(run)})", top[1]) if top else none,
        Cell(f"{losses[-1]:.4f}", losses[-1]) if losses else none,
    )


def _chosen(run: Record) -> str:
    """Return in words on which split the best round was chosen."""
    split = chosen_on(stated(run))
    return f", chosen on {split}" if split else ""


def _joined(settings: Record, words: str) -> str | None:
    try:
        return words.format_map(settings)
    except KeyError:
        return None
