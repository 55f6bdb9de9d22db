"""The table of everything that was measured of each method, which the page sorts."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedscope.errors import UserError
from fedscope.figures.labels import label
from fedscope.figures.report.curves import accuracies, best
from fedscope.figures.report.subjects import Key, Record, Subject, key_of, run_key, stated
from fedscope.figures.rounding import format_estimate
from fedscope.figures.tables import hessian_table
from fedscope.figures.verdicts import ONE_BATCH, comparison_table

NOT_MEASURED, UNSAID = "not measured", "not said"
READINGS = {"tensor": "block traces", "parameter": "diagonal entries"}


@dataclass(frozen=True)
class Cell:
    """What a cell says, and the number that it is sorted by."""

    text: str
    value: float | str | None = None  # None: comes last, whichever way
    color: str | None = None  # of a swatch before the text
    missing: bool = False


@dataclass(frozen=True)
class SortableTable:
    """A table for the page: each row as long as ``columns``."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # (what is not measured, the command that measures it)


def metrics_table(
    runs: Sequence[Record], curvatures: Sequence[Record], who: Mapping[Key, Subject]
) -> SortableTable:
    """Tabulate runs and the curvature records of them or of other checkpoints, one row for each record.

    A column is left out where nothing of its kind can be: the accuracies where there is no run.
    """
    rows: list[tuple[Record | None, Record | None]] = []
    for run in runs:
        own: list[Record | None] = [
            record for record in curvatures if key_of(record["checkpoint"]) == run_key(run)
        ]
        rows += [(run, record) for record in own or [None]]
    known = [run_key(run) for run in runs]
    rows += [(None, r) for r in curvatures if key_of(r["checkpoint"]) not in known]
    cells = [_cells(run, record, who) for run, record in rows]
    columns = [name for name in cells[0] if name not in _TRAINED or runs] if cells else []
    body = tuple(tuple(row[name] for name in columns) for row in cells)
    return SortableTable(
        "What was measured, with standard errors",
        tuple(columns),
        body,
        _notes(curvatures),
        _commands(runs, rows),
    )


def comparison(curvatures: Sequence[Record]) -> SortableTable | None:
    """Tabulate the differences to the first record, where all were measured on the same samples."""
    try:
        table = comparison_table(curvatures)
    except UserError:
        return None
    rows = tuple(tuple(Cell(text, text) for text in row) for row in table.rows)
    return SortableTable(table.title, table.columns, rows, table.notes)


def rows_of_runs(runs: Sequence[Record], who: Mapping[Key, Subject]) -> SortableTable:
    """Tabulate what each run is: data, network, partition, work, seed, and the day it was started."""
    rows = []
    for run in runs:
        manifest, subject = run["manifest"], who[run_key(run)]
        settings = stated(run)
        words = (
            manifest["name"],
            manifest["created"][:10],
            manifest["data"]["name"],
            manifest["model"]["name"],
            _partition(settings),
            _joined(settings, "rounds {rounds}, epochs {epochs}, batch {batch_size}, rate {lr:g}"),
        )
        seed = settings.get("seed")
        values = (
            Cell(subject.name, subject.name, subject.color),
            *(Cell(text or UNSAID, text) for text in words),
            Cell(UNSAID if seed is None else str(seed), seed),
        )
        rows.append(values)
    columns = ("method", "run", "started", "data set", "model", "partition", "local work", "seed")
    return SortableTable("The runs", columns, tuple(rows))


_TRAINED = ("rounds", "final accuracy (%)", "best accuracy (%)", "final loss")


def _cells(run: Record | None, record: Record | None, who: Mapping[Key, Subject]) -> dict[str, Cell]:
    subject = who[key_of(record["checkpoint"]) if record else run_key(run or {})]
    cells = {"method": Cell(subject.name, subject.name, subject.color), **_training(run)}
    if record is None:
        missing = dict.fromkeys((*_measured(None), "measured at"), Cell(NOT_MEASURED, missing=True))
        return {**cells, **missing}
    problem = record["problem"]
    operator = "" if problem.get("operator", "hessian") == "hessian" else f", {problem['operator']}"
    words = f"{label(record['checkpoint'])}, {problem['samples']} samples{operator}"
    return {**cells, **_measured(record), "measured at": Cell(words, words)}


def _training(run: Record | None) -> dict[str, Cell]:
    if run is None:
        return dict.fromkeys(_TRAINED, Cell("–"))
    reached, top = accuracies(run), best(run)
    rounds = max((m["round"] for m in run["metrics"]), default=0)
    losses = [m["loss"] for m in run["metrics"] if m.get("loss") is not None]
    none = Cell(NOT_MEASURED, missing=True)
    return dict(zip(_TRAINED, (
        Cell(str(rounds), rounds),
        Cell(f"{100 * reached[-1][1]:.2f}", reached[-1][1]) if reached else none,
        Cell(f"{100 * top[1]:.2f} (round {top[0]})", top[1]) if top else none,
        Cell(f"{losses[-1]:.4f}", losses[-1]) if losses else none,
    ), strict=True))  # fmt: skip


def _measured(record: Record | None) -> dict[str, Cell]:
    top = record["lambda_max"] if record else None
    total = record["trace"] if record else None
    cross = record["cross_client"] if record else None
    density = record["density"] if record else None
    cells = {
        "λ_max ± data": _cell(top, "stderr_data"),
        "trace ± probe ± data": _cell(total, "stderr_probe", "stderr_data"),
    }
    for symbol in ("H_N", "H_D"):
        for reading, meaning in READINGS.items():
            entry = cross[symbol][reading] if cross else None
            cells[f"{symbol}, {meaning}"] = _cell(entry, "stderr", unresolved=bool(entry))
    entry = density["negative_mass"] if density else None
    mass = negative_mass(entry) if entry else None
    cells["eigenvalues below −σ"] = Cell(mass, entry["value"]) if entry and mass else _cell(None)
    return cells


def negative_mass(entry: Record) -> str | None:
    """Return the share of eigenvalues below −σ to read: its interval, or where none is known its value.

    ``None`` for an older record's, which was of those below zero.
    """
    if entry.get("below") is None:
        return None
    ends = entry.get("interval")
    return format_estimate(entry["value"]) if ends is None else " to ".join(f"{end:.2g}" for end in ends)


def _cell(entry: Record | None, *errors: str, unresolved: bool = False) -> Cell:
    if entry is None:
        return Cell(NOT_MEASURED, missing=True)
    if unresolved and entry["value"] is None:
        return Cell("unresolved")
    return Cell(format_estimate(entry["value"], *(entry.get(name) for name in errors)), entry["value"])


def _notes(curvatures: Sequence[Record]) -> tuple[str, ...]:
    notes = hessian_table(curvatures).notes if curvatures else ()
    unknown = any(len(record["batch_sizes"]) == 1 for record in curvatures)
    return (*notes, f"–: {ONE_BATCH}") if unknown else notes


def _commands(
    runs: Sequence[Record], rows: Sequence[tuple[Record | None, Record | None]]
) -> tuple[tuple[str, str], ...]:
    """Return the commands that would fill the table's gaps."""

    def names(lacking: str | None) -> list[str]:
        found = [
            run["manifest"]["name"] for run, r in rows if run and (r is None or (lacking and not r[lacking]))
        ]
        return list(dict.fromkeys(found))

    wanted = (
        ("λ_max and trace", names(None), ""),
        ("eigenvalues below −σ", names("density"), " --density"),
        ("H_N and H_D (of runs trained with --save-clients last)", names("cross_client"), " --clients"),
    )
    return tuple(
        (what, f"fedscope hessian {' '.join(map(shlex.quote, missing))}{option}")
        for what, missing, option in wanted
        if missing
    )


def _partition(settings: Record) -> str | None:
    if not settings.get("partition") or settings["partition"] == "unknown":
        return None
    alpha = f", α {settings['alpha']:g}" if settings.get("alpha") is not None else ""
    people = f", {settings['clients']} clients" if settings.get("clients") else ""
    share = settings.get("participation")
    chosen = f", {100 * share:g}\u00a0% per round" if share else ""
    return f"{settings['partition']}{alpha}{people}{chosen}"


def _joined(settings: Record, words: str) -> str | None:
    try:
        return words.format_map(settings)
    except KeyError:
        return None
