"""The tables of the curvature: all measurements, and the differences to the first record."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedscope.figures.digits import format_estimate
from fedscope.figures.text.advice import ONE_BATCH, advice
from fedscope.figures.text.comparison_table import comparable, comparison_table
from fedscope.figures.text.hessian_table import CARRIED_BY, all_rows, effective_number, hessian_table
from fedscope.figures.text.influence_tables import percent
from fedscope.figures.text.labels import label
from fedscope.records.commands import reference
from fedscope.records.hessian_record import HessianRecord, NegativeMass
from fedscope.records.quantities import LAMBDA_MAX, QUANTITIES
from fedscope.records.run_record import RunRecord
from fedscope.report.sortable_table import MISSING, Cell, SortableTable, measured, told
from fedscope.report.subjects import Key, Subjects, key_of, row_names, run_key
from fedscope.statistics.concentration import top_share

TOP = "top 1 %"


@dataclass(frozen=True)
class Row:
    """A run and a curvature record of it, or either alone."""

    key: Key
    run: RunRecord | None
    record: HessianRecord | None


def rows_of(runs: Sequence[RunRecord], curvatures: Sequence[HessianRecord]) -> list[Row]:
    rows: list[Row] = []
    for run in runs:
        key = run_key(run)
        own = [record for record in curvatures if key_of(record.checkpoint) == key]
        rows += [Row(key, run, record) for record in own or (None,)]
    known = [run_key(run) for run in runs]
    others = [(key_of(record.checkpoint), record) for record in curvatures]
    return rows + [Row(key, None, record) for key, record in others if key not in known]


def curvature_table(
    runs: Sequence[RunRecord], curvatures: Sequence[HessianRecord], who: Subjects
) -> SortableTable:
    rows = rows_of(runs, curvatures)
    carried = any(record.lambda_max.by_sample for record in curvatures)
    cells = [_cells(row, who, carried=carried) for row in rows]
    columns = tuple(cells[0]) if cells else ()
    body = tuple(tuple(row.values()) for row in cells)
    notes, commands = _notes(curvatures), _commands(runs, rows)
    return SortableTable(
        "curvature-table", "What was measured, with standard errors", columns, body, notes, commands
    )


def comparison(curvatures: Sequence[HessianRecord], who: Subjects) -> SortableTable | None:
    """Tabulate the differences to the first record of those that were measured on the same samples."""
    fitting = comparable(curvatures)
    if len(fitting) < 2:
        return None
    table = comparison_table(fitting)
    reference, *others = row_names(fitting, who)
    rows = []
    for name, record, (_, *texts) in zip(others, fitting[1:], table.rows, strict=True):
        color = who[key_of(record.checkpoint)].color
        rows.append((Cell(name, name, color), *map(told, texts)))
    columns = ("method", *table.columns[1:])
    return SortableTable("comparison-table", f"Difference to {reference}", columns, tuple(rows), table.notes)


def _cells(row: Row, who: Subjects, *, carried: bool) -> dict[str, Cell]:
    subject, record = who[row.key], row.record
    cells = {"method": Cell(subject.name, subject.name, subject.color), **_measured(record, carried=carried)}
    if record is None:
        return {**cells, "checkpoint": MISSING, "samples": MISSING}
    problem = record.problem
    operator = "" if problem.operator == "hessian" else f" ({problem.operator})"
    words = f"{label(record.checkpoint)}{operator}"
    return {
        **cells,
        "checkpoint": Cell(words, words),
        "samples": Cell(str(problem.samples), problem.samples),
    }


def _measured(record: HessianRecord | None, *, carried: bool) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for one in QUANTITIES:
        if one.is_compared:
            cells[one.column] = measured(one.of(record) if record else None)
        if one is LAMBDA_MAX and carried:
            cells |= _carriers(record)
    mass = record.density.negative_mass if record and record.density else None
    cells["eigenvalues below −σ"] = Cell(negative_mass(mass), mass.value) if mass else MISSING
    return cells


def _carriers(record: HessianRecord | None) -> dict[str, Cell]:
    top = record.lambda_max if record else None
    if top is None or top.by_sample is None or math.isnan(share := top_share(top.by_sample)[1]):
        return {CARRIED_BY: MISSING, TOP: MISSING}
    number = Cell(effective_number(top.effective_samples), top.effective_samples)
    return {CARRIED_BY: number, TOP: Cell(f"{percent(share)} %", share)}


def negative_mass(mass: NegativeMass) -> str:
    """Return the share of eigenvalues below −σ."""
    if mass.interval is None:
        return format_estimate(mass.value)
    return " to ".join(f"{end:.2g}" for end in mass.interval)


def _notes(curvatures: Sequence[HessianRecord]) -> tuple[str, ...]:
    notes = hessian_table(curvatures).notes if curvatures else ()
    unknown = any(ONE_BATCH in advice(record) for record in curvatures)
    if any(record.lambda_max.by_sample for record in curvatures):
        notes = (*notes, f"{TOP}: share of λ_max that the 1 % of samples with the largest parts q carry")
    notes += tuple(
        f"{label(record.checkpoint)}: {line}" for record in curvatures if (line := all_rows(record))
    )
    return (*notes, f"–: {ONE_BATCH}") if unknown else notes


def _commands(runs: Sequence[RunRecord], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    def names(lacking: Callable[[HessianRecord], bool]) -> list[str]:
        found = [
            reference(row.run.name, file)
            for row in rows
            if row.run and (row.record is None or lacking(row.record))
            for file in ([row.record.checkpoint.path] if row.record else row.run.asked or ["final.pt"])
        ]
        return list(dict.fromkeys(found))

    where = next((run.registry_option for run in runs if run.registry_option is not None), "")
    no_density = names(lambda record: record.density is None)
    no_clients = names(lambda record: record.cross_client is None)
    wanted = (
        ("λ_max and trace", names(lambda record: False), ""),
        ("eigenvalues below −σ", no_density, " --density"),
        ("H_N and H_D (of runs trained with --save-clients last)", no_clients, " --clients"),
    )
    return tuple(
        (what, f"fedscope hessian {' '.join(missing)}{option}{where}")
        for what, missing, option in wanted
        if missing
    )
