"""The tables of the curvature: everything that was measured, and the differences to the first record."""

from collections.abc import Mapping, Sequence

from fedscope.figures.numbers import format_estimate
from fedscope.figures.text.advice import ONE_BATCH
from fedscope.figures.text.labels import label
from fedscope.figures.text.tables import hessian_table
from fedscope.figures.text.verdicts import comparison_table
from fedscope.records.commands import reference
from fedscope.report.cells import NOT_MEASURED, Cell, SortableTable, compared, measured
from fedscope.report.subjects import Key, Record, Subject, key_of, row_names, run_key
from fedscope.report.verdicts import comparable

READINGS = ("tensor", "parameter")
Row = tuple[Record | None, Record | None]  # a run and a curvature record of it; either alone


def rows_of(runs: Sequence[Record], curvatures: Sequence[Record]) -> list[Row]:
    """Return each run with each of its records, then the records of checkpoints from elsewhere."""
    rows: list[Row] = []
    for run in runs:
        own = [record for record in curvatures if key_of(record["checkpoint"]) == run_key(run)]
        rows += [(run, record) for record in own] or [(run, None)]
    known = [run_key(run) for run in runs]
    return rows + [(None, r) for r in curvatures if key_of(r["checkpoint"]) not in known]


def curvature_table(
    runs: Sequence[Record], curvatures: Sequence[Record], who: Mapping[Key, Subject]
) -> SortableTable:
    """Tabulate the curvature of runs and of other checkpoints, one row for each record."""
    rows = rows_of(runs, curvatures)
    cells = [_cells(run, record, who) for run, record in rows]
    columns = tuple(cells[0]) if cells else ()
    body = tuple(tuple(row.values()) for row in cells)
    notes, commands = _notes(curvatures), _commands(runs, rows)
    return SortableTable(
        "curvature-table", "What was measured, with standard errors", columns, body, notes, commands
    )


def comparison(curvatures: Sequence[Record], who: Mapping[Key, Subject]) -> SortableTable | None:
    """Tabulate the differences to the first record of those that were measured on the same samples."""
    fitting = comparable(curvatures)
    if len(fitting) < 2:
        return None
    table = comparison_table(fitting)
    reference, *others = row_names(fitting, who)
    rows = []
    for name, record, (_, *texts) in zip(others, fitting[1:], table.rows, strict=True):
        color = who[key_of(record["checkpoint"])].color
        rows.append((Cell(name, name, color), *(Cell(text, text) for text in texts)))
    columns = ("method", *table.columns[1:])
    return SortableTable("comparison-table", f"Difference to {reference}", columns, tuple(rows), table.notes)


def _cells(run: Record | None, record: Record | None, who: Mapping[Key, Subject]) -> dict[str, Cell]:
    subject = who[key_of(record["checkpoint"]) if record else run_key(run or {})]
    cells = {"method": Cell(subject.name, subject.name, subject.color)}
    if record is None:
        missing = Cell(NOT_MEASURED, missing=True)
        return {**cells, **_measured(None), "checkpoint": missing, "samples": missing}
    problem = record["problem"]
    operator = "" if problem.get("operator", "hessian") == "hessian" else f" ({problem['operator']})"
    words, samples = f"{label(record['checkpoint'])}{operator}", problem["samples"]
    return {
        **cells,
        **_measured(record),
        "checkpoint": Cell(words, words),
        "samples": Cell(str(samples), samples),
    }


def _measured(record: Record | None) -> dict[str, Cell]:
    cross = record["cross_client"] if record else None
    density = record["density"] if record else None
    cells = {
        "λ_max ± data": measured(record["lambda_max"] if record else None, "stderr_data"),
        "trace ± probe ± data": measured(record["trace"] if record else None, "stderr_probe", "stderr_data"),
    }
    for symbol in ("H_N", "H_D"):
        for reading in READINGS:
            cells[f"{symbol} ({reading})"] = compared(cross and cross[symbol][reading], symbol)
    entry = density["negative_mass"] if density else None
    mass = negative_mass(entry) if entry else None
    cells["eigenvalues below −σ"] = Cell(mass, entry["value"]) if entry and mass else measured(None)
    return cells


def negative_mass(entry: Record) -> str | None:
    """Return the share of eigenvalues below −σ to read: its interval, or where none is known its value.

    ``None`` for an older record's, which was of those below zero.
    """
    if entry.get("below") is None:
        return None
    ends = entry.get("interval")
    return format_estimate(entry["value"]) if ends is None else " to ".join(f"{end:.2g}" for end in ends)


def _notes(curvatures: Sequence[Record]) -> tuple[str, ...]:
    notes = hessian_table(curvatures).notes if curvatures else ()
    unknown = any(len(record["batch_sizes"]) == 1 for record in curvatures)
    return (*notes, f"–: {ONE_BATCH}") if unknown else notes


def _commands(runs: Sequence[Record], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    """Return the commands that would fill the table's gaps."""

    def names(lacking: str | None) -> list[str]:
        found = [
            reference(run["manifest"]["name"], file)
            for run, r in rows
            if run and (r is None or (lacking and not r[lacking]))
            for file in ([r["checkpoint"]["path"]] if r else run.get("asked") or ["final.pt"])
        ]
        return list(dict.fromkeys(found))

    where = next((run["registry_option"] for run in runs if "registry_option" in run), "")
    wanted = (
        ("λ_max and trace", names(None), ""),
        ("eigenvalues below −σ", names("density"), " --density"),
        ("H_N and H_D (of runs trained with --save-clients last)", names("cross_client"), " --clients"),
    )
    return tuple(
        (what, f"fedscope hessian {' '.join(missing)}{option}{where}")
        for what, missing, option in wanted
        if missing
    )
