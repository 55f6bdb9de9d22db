"""The record of a table or figure, schema ``fedscope/artefact/1``, from which everything is rendered."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.landscape.surroundings import code
from fedscope.records.artefact import ARTEFACT_SCHEMA, ArtefactRecord, Claim, PaperValue
from fedscope.records.entries import Record
from fedscope.records.sharpness_compared import LEAST, correlated
from fedscope.records.sharpness_record import SharpnessRecord
from fedscope.reproduce.artefacts import costs, departures
from fedscope.reproduce.artefacts.claims import Statement, borrowed_notes, borrowed_spreads, judge
from fedscope.reproduce.artefacts.departures import DIVERGED, DRAWN
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.artefacts.row_differences import Sample, Samples, SeedSpread
from fedscope.reproduce.recipes.run_cells import RunCell
from fedscope.reproduce.recipes.spec import Recipe, printed, table
from fedscope.reproduce.recipes.table_quantities import QUANTITIES, SHARPNESS, mean, spread
from fedscope.reproduce.runs.inventory import RunEntry

NOT_MEASURED = "not measured"
BEYOND = 2.0  # combined errors, from which on a difference to the paper is marked
GRIDS = {"cost": costs.cost_grid, "traffic": costs.traffic_grid}


def assemble(
    recipe: Recipe,
    cells: Sequence[RunCell],
    filled: Sequence[FilledCell],
    command: str,
    diverged: Sequence[tuple[RunCell, RunEntry]] = (),
    elsewhere: Sequence[FilledCell] = (),
) -> ArtefactRecord:
    """Return an artefact's record; ``elsewhere`` are the cells that tell the spread between trainings."""
    samples = _samples(recipe, filled)
    borrowed = borrowed_spreads(recipe, _of_runs(elsewhere))
    absent = {(cell.row, cell.column): DIVERGED for cell, _ in diverged}
    absent |= {(one.cell.row, one.cell.column): NOT_MEASURED for one in filled}
    apart = departures.apart(cells, filled)
    drawn = [(one.cell.row, content) for one in filled if (content := _drawn(recipe, one))]
    record: Record = {
        "schema": ARTEFACT_SCHEMA,
        "recipe": recipe.name,
        "title": recipe.title,
        "printed_in": recipe.table,
        "source": recipe.source,
        "kind": recipe.kind,
        "scale": recipe.scale.name,
        "why": list(recipe.scale.why),
        "reductions": [
            *departures.left_out(recipe, cells),
            *departures.reductions(recipe, cells, filled),
            *departures.training_samples(filled),
        ],
        "provisional": departures.provisional(cells),
        "notes": [
            *recipe.notes,
            *borrowed_notes(recipe, samples, borrowed),
            *departures.notes(filled),
            *departures.divergences(diverged),
            *departures.undrawn(recipe, cells, {row for row, _ in drawn}),
        ],
        "command": command,
        "complete": not recipe.columns or _complete(cells, filled),
        "rows": list(recipe.rows) if recipe.columns else [],
        "columns": list(recipe.columns),
        "quantities": {q: QUANTITIES[q].title for c in recipe.columns for q in recipe.shows(c)},
        "entries": [
            _entry(recipe, row, column, quantity, samples, absent, apart)
            for column, where in recipe.columns.items()
            for row in where.rows or recipe.scale.rows or recipe.rows
            for quantity in recipe.shows(column)
            if not QUANTITIES[quantity].drawn
        ],
        "claims": [claim.to_json() for claim in _claims(recipe, samples, borrowed)],
        "drawn": [content for _, content in drawn],
        "runs": [one.describe() for one in filled],
        "versions": {**versions(), "analysis": code()[:16]},
    }
    record |= _of_kind(recipe, cells, filled)
    return ArtefactRecord.read(json.loads(json.dumps(record)))


def _of_kind(recipe: Recipe, cells: Sequence[RunCell], filled: Sequence[FilledCell]) -> Record:
    record: Record = {}
    if recipe.kind in GRIDS:
        record["grid"] = GRIDS[recipe.kind](recipe)
    if recipe.panels:
        record["panels"] = recipe.panels
    if recipe.kind == "correlation":
        record["correlations"] = _correlations(filled)
    if recipe.sweep:
        record["sweep"] = {**asdict(recipe.sweep), "values": _swept(recipe.sweep.option, cells)}
    return record


def _claims(recipe: Recipe, samples: Samples, borrowed: Mapping[str, SeedSpread]) -> list[Claim]:
    papers = [_printed(recipe, text) for text in recipe.claims]
    return judge(recipe.claims, samples, list(recipe.columns), _compared(recipe), papers, borrowed)


def _samples(recipe: Recipe, filled: Sequence[FilledCell]) -> dict[tuple[str, str, str], Sample]:
    found = _of_runs(filled)
    for column in recipe.columns:
        for name in recipe.shows(column):
            if QUANTITIES[name].static:
                for row, method in recipe.rows.items():
                    static = costs.static_number(name, recipe.columns[column].preset, method)
                    found[row, column, name] = Sample((static,))
    return found


def _of_runs(filled: Sequence[FilledCell]) -> dict[tuple[str, str, str], Sample]:
    groups: dict[tuple[str, str], list[FilledCell]] = {}
    for one in filled:
        groups.setdefault((one.cell.row, one.cell.column), []).append(one)
    found: dict[tuple[str, str, str], Sample] = {}
    for (row, column), ones in groups.items():
        rounds = {one.match.round for one in ones}
        round = rounds.pop() if len(rounds) == 1 else None
        data = frozenset(filter(None, (one.match.entry.manifest.data.fingerprint for one in ones)))
        for name in ones[0].cell.quantities:
            if QUANTITIES[name].drawn and name != "spectrum":
                continue
            known = [number for one in ones if (number := one.number(name))]
            if known:
                numbers, records = zip(*known, strict=True)
                found[row, column, name] = Sample(numbers, records, round, data)
    return found


def _entry(
    recipe: Recipe,
    row: str,
    column: str,
    quantity: str,
    samples: Mapping[tuple[str, str, str], Sample],
    absent: Mapping[tuple[str, str], str],
    apart: Collection[tuple[str, str]],
) -> Record:
    sample = samples.get((row, column, quantity))
    paper = printed(recipe.name, row, recipe.columns[column].published or column, quantity)
    entry: Record = {
        "row": row, "column": column, "quantity": quantity, "value": None, "std": None, "error": None,
        "seeds": len(sample.numbers) if sample else 0, "each": [], "text": None, "round": None,
        "paper": paper.to_json() if paper else None, "differs": None,
    }  # fmt: skip
    if sample is None:
        return {**entry, "text": absent.get((row, column))}
    values = [number.value for number in sample.numbers]
    entry |= {"each": values, "round": sample.round}
    if any(value is None for value in values):
        texts = [n.text if n.value is None else f"{n.value:g}" for n in sample.numbers]
        return {**entry, "text": ", ".join(texts if len(set(texts)) > 1 else texts[:1])}
    average, error, _ = mean(sample.numbers)
    std = spread([float(v) for v in values if v is not None]) if len(values) > 1 else None
    published = QUANTITIES[quantity].static or (row, column) not in apart
    comparable = published and recipe.scale.name != "smoke"
    differs = _differs(average, error, paper) if comparable else None
    return {**entry, "value": average, "std": std, "error": error, "differs": differs}


def _differs(value: float, error: float | None, paper: PaperValue | None) -> bool | None:
    """Say whether a value is off the paper's by more than the combined error; None where not known."""
    if paper is None or paper.number is None or (error is None and paper.spread is None):
        return None
    own_digit = 0.5 * 10.0 ** -len(paper.value.partition(".")[2])  # the printed number is rounded
    combined = math.hypot(error or 0.0, paper.spread or 0.0)
    return abs(value - paper.number) > max(BEYOND * combined, own_digit)


def _complete(cells: Sequence[RunCell], filled: Sequence[FilledCell]) -> bool:
    whole = [one for one in filled if one.match.round == one.cell.settings.rounds]
    return len(whole) == len(cells) and all(
        all(name in one.records for name in one.cell.measures) for one in whole
    )


def _compared(recipe: Recipe) -> list[str]:
    _, _, artefact = recipe.name.partition("/")
    known = {row for (where, row, *_) in table(recipe.paper) if where == artefact}
    return [row for row in recipe.rows if row in known] or list(recipe.rows)


def _printed(recipe: Recipe, statement: str) -> dict[str, dict[str, float]]:
    quantity = Statement.read(statement).quantity
    return {
        label: {
            row: paper.number
            for row in recipe.rows
            if (paper := printed(recipe.name, row, column.published or label, quantity))
            and paper.number is not None
        }
        for label, column in recipe.columns.items()
    }


def _drawn(recipe: Recipe, one: FilledCell) -> Record | None:
    at = {**one.cell.describe(), "run": one.match.entry.manifest.name, "round": one.match.round}
    if recipe.kind == "curves":
        return {**at, "accuracy": [m.accuracy for m in one.metrics]}
    if recipe.kind in DRAWN:
        name = next(iter(one.cell.measures))
        record = one.records.get(name)
        return None if record is None else {**at, "measure": name, "record": record.to_json()}
    return None


def _correlations(filled: Sequence[FilledCell]) -> list[Record]:
    """Return Kendall's τ of every sharpness with the generalisation gap; nothing of too few runs."""
    found = [one.records.get(SHARPNESS) for one in filled]
    measured = [record for record in found if isinstance(record, SharpnessRecord)]
    if len(measured) < LEAST:
        return []
    return [one.to_json() for one in correlated(measured, "gap").correlations]


def _swept(option: str, cells: Sequence[RunCell]) -> dict[str, float | None]:
    values = {cell.row: cell.settings.options.get(option) for cell in cells}
    return {row: None if value is None else float(value) for row, value in values.items()}
