"""The record of a table or figure: every number in it, what each is of, and what it is not.

Schema ``fedscope/artefact/1``. Everything that is rendered comes from this record, so that a rendering can be
made again, or in another form, from the file beside it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.file.schema import Round, Settings
from fedscope.data.sets import catalogue as data_catalogue
from fedscope.federated.setup.presets import preset
from fedscope.landscape.surroundings import code
from fedscope.records.artefact import ARTEFACT_SCHEMA, ArtefactRecord
from fedscope.records.entries import Record
from fedscope.records.hessian import HessianRecord
from fedscope.records.reading import Kept
from fedscope.reproduce.artefacts import costs
from fedscope.reproduce.artefacts.claims import Sample, Statement, judge, mean, spread
from fedscope.reproduce.recipes.cells import Cell
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.published import Printed, printed, table
from fedscope.reproduce.recipes.quantities import QUANTITIES, Number, from_metrics, from_record
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.recipes.spec import recipe as published_recipe
from fedscope.reproduce.runs.inventory import Match, RunEntry
from fedscope.reproduce.runs.measure import content, kept, key

NOT_MEASURED, DIVERGED = "not measured", "diverged"
BEYOND = 2.0  # combined errors, from which on a difference to the paper is marked
DRAWN = ("curves", "spectrum", "density", "landscape")
GRIDS = {"cost": costs.cost_grid, "traffic": costs.traffic_grid}


@dataclass(frozen=True)
class FilledCell:
    """A cell with the run that stands in it, and what was measured of that."""

    cell: Cell
    match: Match
    registry: Path

    @cached_property
    def metrics(self) -> list[Round]:
        """The rounds that count."""
        return self.match.entry.metrics[: self.match.round]

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The checkpoint that each measure is of, where it is there."""
        paths = {name: self.match.path(self.cell, wanted) for name, wanted in self.cell.measures.items()}
        return {name: path for name, path in paths.items() if path}

    @cached_property
    def records(self) -> dict[str, Kept]:
        """The results that there are, by the measure's name."""
        measures = self.cell.measures
        found = {name: kept(self.registry, path, measures[name]) for name, path in self.paths.items()}
        return {name: record for name, record in found.items() if record is not None}

    def number(self, quantity: str) -> tuple[Number, HessianRecord | None] | None:
        """Return a quantity's value and the record it is from; None where it is not measured."""
        measure = QUANTITIES[quantity].measure
        if measure is None:
            tested = self.match.entry.manifest.data.test_samples
            return from_metrics(quantity, self._settings(), self.metrics, tested), None
        record = self.records.get(measure)
        return (from_record(quantity, record), record) if isinstance(record, HessianRecord) else None

    def _settings(self) -> Settings:
        """The run's settings as they are of the cell: its length decides what half of the rounds is."""
        update = {"rounds": self.cell.settings.rounds, "target": self.cell.settings.target}
        return self.match.entry.manifest.settings.model_copy(update=update)

    def describe(self) -> Record:
        """Return which run this is, and of which checkpoints what was measured."""
        manifest, measures = self.match.entry.manifest, self.cell.measures
        checkpoints = {
            name: {"file": path.name, "sha256": content(path), "result": key(path, measures[name])}
            for name, path in self.paths.items()
        }
        return {
            **self.cell.describe(),
            "run": manifest.name,
            "round": self.match.round,
            "schedule": manifest.settings.rounds,
            "preset": self.cell.use.model_dump(mode="json"),
            "settings": manifest.settings.model_dump(mode="json"),
            "data": manifest.data.model_dump(mode="json"),
            "versions": manifest.versions,
            "checkpoints": checkpoints,
        }


def assemble(
    recipe: Recipe,
    cells: Sequence[Cell],
    filled: Sequence[FilledCell],
    command: str,
    diverged: Sequence[tuple[Cell, RunEntry]] = (),
) -> ArtefactRecord:
    """Return the record of an artefact from what there is; empty cells stay empty."""
    samples = _samples(recipe, filled)
    absent = {(cell.row, cell.column): DIVERGED for cell, _ in diverged}
    absent |= {(one.cell.row, one.cell.column): NOT_MEASURED for one in filled}
    drawn = [payload for one in filled if (payload := _drawn(recipe, one))]
    record: Record = {
        "schema": ARTEFACT_SCHEMA,
        "recipe": recipe.name,
        "title": recipe.title,
        "printed_in": recipe.table,
        "source": recipe.source,
        "kind": recipe.kind,
        "scale": recipe.scale.name,
        "why": list(recipe.scale.why),
        "reductions": [*_left_out(recipe, cells), *reductions(recipe, cells, filled)],
        "provisional": _provisional(cells),
        "notes": [*recipe.notes, *_notes(filled), *_divergences(diverged), *_undrawn(recipe, cells, drawn)],
        "command": command,
        "complete": not recipe.columns or _complete(cells, filled),
        "rows": list(recipe.rows) if recipe.columns else [],
        "columns": list(recipe.columns),
        "quantities": {q: asdict(QUANTITIES[q])["title"] for c in recipe.columns for q in recipe.shows(c)},
        "entries": [
            _entry(recipe, row, column, quantity, samples, absent)
            for column, where in recipe.columns.items()
            for row in where.rows or recipe.rows
            for quantity in recipe.shows(column)
            if not QUANTITIES[quantity].drawn
        ],
        "claims": [
            asdict(judge(text, samples, list(recipe.columns), _compared(recipe), _printed(recipe, text)))
            for text in recipe.claims
        ],
        "drawn": drawn,
        "runs": [one.describe() for one in filled],
        "versions": {**versions(), "analysis": code()[:16]},
    }
    if recipe.kind in GRIDS:
        record["grid"] = GRIDS[recipe.kind](recipe)
    if recipe.sweep:
        record["sweep"] = {**recipe.sweep, "values": _swept(recipe, cells)}
    return ArtefactRecord.read(json.loads(json.dumps(record)))


def _samples(recipe: Recipe, filled: Sequence[FilledCell]) -> dict[tuple[str, str, str], Sample]:
    groups: dict[tuple[str, str], list[FilledCell]] = {}
    for one in filled:
        groups.setdefault((one.cell.row, one.cell.column), []).append(one)
    found: dict[tuple[str, str, str], Sample] = {}
    for (row, column), ones in groups.items():
        rounds = {one.match.round for one in ones}
        for name in ones[0].cell.quantities:
            if QUANTITIES[name].drawn and name != "spectrum":
                continue
            known = [number for one in ones if (number := one.number(name))]
            if known:
                numbers, records = zip(*known, strict=True)
                found[row, column, name] = Sample(
                    numbers, records, rounds.pop() if len(rounds) == 1 else None
                )
                rounds = {one.match.round for one in ones}
    for column in recipe.columns:
        for name in recipe.shows(column):
            if QUANTITIES[name].static:
                for row, method in recipe.rows.items():
                    static = costs.static_number(name, recipe.columns[column].preset, method)
                    found[row, column, name] = Sample((static,))
    return found


def _entry(
    recipe: Recipe,
    row: str,
    column: str,
    quantity: str,
    samples: Mapping[tuple[str, str, str], Sample],
    absent: Mapping[tuple[str, str], str],
) -> Record:
    sample = samples.get((row, column, quantity))
    paper = printed(recipe.name, row, recipe.columns[column].published or column, quantity)
    entry: Record = {
        "row": row, "column": column, "quantity": quantity, "value": None, "std": None, "error": None,
        "seeds": len(sample.numbers) if sample else 0, "each": [], "text": None, "round": None,
        "paper": asdict(paper) if paper else None, "differs": None,
    }  # fmt: skip
    if sample is None:
        return {**entry, "text": absent.get((row, column))}
    values = [number.value for number in sample.numbers]
    entry |= {"each": values, "round": sample.round}
    if any(value is None for value in values):
        return {
            **entry,
            "text": ", ".join(n.text if n.value is None else f"{n.value:g}" for n in sample.numbers),
        }
    average, error, _ = mean(sample.numbers)
    std = spread([float(v) for v in values if v is not None]) if len(values) > 1 else None
    differs = _differs(average, error, paper) if recipe.scale.name != "smoke" else None
    return {**entry, "value": average, "std": std, "error": error, "differs": differs}


def _differs(value: float, error: float | None, paper: Printed | None) -> bool | None:
    """Say whether a value is off the paper's by more than the combined error; None where not known."""
    if paper is None or paper.number is None or (error is None and paper.spread is None):
        return None
    own_digit = 0.5 * 10.0 ** -len(paper.value.partition(".")[2])  # the printed number is rounded
    combined = math.hypot(error or 0.0, paper.spread or 0.0)
    return abs(value - paper.number) > max(BEYOND * combined, own_digit)


def reductions(recipe: Recipe, cells: Sequence[Cell], filled: Sequence[FilledCell]) -> list[str]:
    """Return in which settings the artefact departs from the published experiment, and for which rows."""
    departs: dict[str, list[str]] = {}
    swept = (f"{recipe.sweep['option']} ",) if recipe.sweep else ()
    for cell in cells:
        for text in cell.use.overridden:
            if not text.startswith(swept):
                departs.setdefault(text, []).append(cell.row)
    for one in filled:
        own, wanted, at = one.match.entry.manifest.settings, one.cell.settings, one.match.round
        if at < wanted.rounds:
            departs.setdefault(f"after {at} of {wanted.rounds} rounds", []).append(one.cell.row)
        elif own.rounds > at:
            departs.setdefault(f"at round {at} of a run of {own.rounds}", []).append(one.cell.row)
        if own.precision != wanted.precision:
            departs.setdefault(f"trained in {own.precision}", []).append(one.cell.row)
    everyone = {cell.row for cell in cells}
    whole = len({(cell.row, cell.column, cell.seed) for cell in cells})
    found = [
        text if len(rows) == whole or set(rows) == everyone else f"{text} ({', '.join(dict.fromkeys(rows))})"
        for text, rows in departs.items()
    ]
    measures: dict[str, Measure] = {}
    for cell in cells:
        measures |= cell.measures
    return found + [f"{name}: {wanted.summary()}" for name, wanted in measures.items()]


def _left_out(recipe: Recipe, cells: Sequence[Cell]) -> list[str]:
    """Return which of the published rows, columns and seeds have no part in this."""
    if not cells:
        return []
    whole, found = published_recipe(recipe.name), []
    rows = [row for row in recipe.rows if row not in {cell.row for cell in cells}]
    shown = {column.published or label for label, column in recipe.columns.items()}
    columns = [label for label in whole.columns if label not in shown]
    seeds, published = {cell.seed for cell in cells}, preset(cells[0].use.name).seeds
    found += [f"without {', '.join(rows)}"] if rows else []
    found += [f"without the columns {'; '.join(columns)}"] if columns else []
    if not seeds <= set(published):
        return [*found, f"seeds {_listed(published)} → {_listed(sorted(seeds))}"]
    return found + ([f"{len(seeds)} of {len(published)} seeds"] if len(seeds) < len(published) else [])


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _provisional(cells: Sequence[Cell]) -> list[str]:
    """Return the settings that no source gives, as they stand here."""
    found: dict[str, None] = {}
    for cell in cells:
        values = {**cell.settings.model_dump(), **cell.settings.options}
        for name, why in cell.use.provisional.items():
            found[f"{name} {values.get(name)} ({why})"] = None
    return list(found)


def _notes(filled: Sequence[FilledCell]) -> list[str]:
    notes = []
    sources = dict.fromkeys(one.match.entry.manifest.data.name for one in filled)
    for name in sources:
        expected = data_catalogue.record(name).expected["train"]
        held = _held(filled, name)
        if held and held < expected:
            notes.append(f"{name}: {held:,} of the published {expected:,} training samples were at hand")
    old = {one.cell.row for one in filled for record in one.records.values() if _is_old(record)}
    if old:
        notes.append(f"measured by an earlier version of fedscope: {', '.join(sorted(old))}")
    return notes


def _divergences(diverged: Sequence[tuple[Cell, RunEntry]]) -> list[str]:
    return [
        f"{DIVERGED}: {cell.row}, seed {cell.seed}, in round {held.manifest.diverged}"
        for cell, held in diverged
    ]


def _undrawn(recipe: Recipe, cells: Sequence[Cell], drawn: Sequence[Record]) -> list[str]:
    """Name the rows that a figure lacks; a table has an empty cell for each."""
    shown = {one["row"] for one in drawn}
    rows = [row for row in recipe.rows if row in {cell.row for cell in cells} - shown]
    if recipe.kind not in DRAWN or not rows:
        return []
    return [f"not drawn, since the registry has no run or no result of it: {', '.join(rows)}"]


def _held(filled: Sequence[FilledCell], name: str) -> int | None:
    """Return how many training samples a data set had, where no run says it took a part of it."""
    whole = [
        one.match.entry.manifest.data.train_samples
        for one in filled
        if one.match.entry.manifest.data.name == name and one.cell.settings.train_samples is None
    ]
    return whole[0] if whole else None


def _is_old(record: Kept) -> bool:
    return bool(record.versions) and record.versions.get("fedscope") != versions().get("fedscope")


def _complete(cells: Sequence[Cell], filled: Sequence[FilledCell]) -> bool:
    whole = [one for one in filled if one.match.round == one.cell.settings.rounds]
    return len(whole) == len(cells) and all(len(one.records) == len(one.cell.measures) for one in whole)


def _compared(recipe: Recipe) -> list[str]:
    """Return the rows that the paper's table has, or all where it has none of ours."""
    _, _, artefact = recipe.name.partition("/")
    known = {row for (where, row, *_) in table(recipe.paper) if where == artefact}
    return [row for row in recipe.rows if row in known] or list(recipe.rows)


def _printed(recipe: Recipe, statement: str) -> dict[str, dict[str, float]]:
    """Return what the paper prints of a statement's quantity, by column and row."""
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
    """Return what a figure draws of a cell."""
    at = {**one.cell.describe(), "run": one.match.entry.manifest.name, "round": one.match.round}
    if recipe.kind == "curves":
        return {**at, "accuracy": [m.accuracy for m in one.metrics]}
    if recipe.kind in DRAWN:
        name = next(iter(one.cell.measures))
        record = one.records.get(name)
        return None if record is None else {**at, "measure": name, "record": record.to_json()}
    return None


def _swept(recipe: Recipe, cells: Sequence[Cell]) -> dict[str, float | None]:
    """Return the swept option's value of each row; None for a row without it."""
    found = {}
    for cell in cells:
        value = cell.settings.options.get(recipe.sweep["option"])
        found[cell.row] = None if value is None else float(value)
    return found
