"""Where an artefact departs from the published experiment: settings, rows, seeds, data, what is not drawn."""

import math
import re
from collections.abc import Collection, Iterable, Sequence

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.federated.setup.paper_presets import preset
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.saved_records import Kept
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.run_cells import RunCell
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.runs.inventory import RunEntry

DIVERGED = "diverged"
TRAINED_ON = " training samples of "
_ADDED = re.compile(r"method: \S+ is not in the table")  # of a preset
DRAWN = ("curves", "spectrum", "density", "landscape", "correlation")  # kinds drawn of runs


def reductions(recipe: Recipe, cells: Sequence[RunCell], filled: Sequence[FilledCell]) -> list[str]:
    departs: dict[str, set[tuple[str, str]]] = {}  # (column, row) places
    added: dict[str, None] = {}  # rows
    swept = (f"{recipe.sweep.option} ",) if recipe.sweep else ()
    for cell in cells:
        for text in cell.use.overridden:
            if _ADDED.fullmatch(text):
                added[cell.row] = None
            elif not text.startswith(swept):
                departs.setdefault(text, set()).add((cell.column, cell.row))
    for one in filled:
        own, wanted, at = one.match.entry.manifest.settings, one.cell.settings, one.match.round
        place = (one.cell.column, one.cell.row)
        if at < wanted.rounds:
            departs.setdefault(f"after {at} of {wanted.rounds} rounds", set()).add(place)
        elif own.rounds > at:
            departs.setdefault(f"at round {at} of a run of {own.rounds}", set()).add(place)
        if own.precision != wanted.precision:
            departs.setdefault(f"trained in {own.precision}", set()).add(place)
    every = dict.fromkeys((cell.column, cell.row) for cell in cells)
    found = [
        f"{text}{_where([place for place in every if place in some], every)}"
        for text, some in departs.items()
    ]
    found += [f"methods beyond those of the table: {', '.join(added)}"] if added else []
    measures: dict[str, Measure] = {}
    for cell in cells:
        measures |= cell.measures
    return found + [f"{name}: {wanted.summary()}" for name, wanted in measures.items()]


def left_out(recipe: Recipe, cells: Sequence[RunCell]) -> list[str]:
    if not cells:
        return []
    found = []
    rows = [row for row in recipe.rows if row not in {cell.row for cell in cells}]
    shown = {column.published or label for label, column in recipe.columns.items()}
    columns = [label for label in recipe.published_columns if label not in shown]
    seeds, published = {cell.seed for cell in cells}, preset(cells[0].use.name).seeds
    found += [f"without {', '.join(rows)}"] if rows else []
    found += [f"without the columns {'; '.join(columns)}"] if columns else []
    if not seeds <= set(published):
        return [*found, f"seeds {_listed(published)} → {_listed(sorted(seeds))}"]
    held: dict[tuple[str, str], set[int]] = {}
    for cell in cells:
        held.setdefault((cell.column, cell.row), set()).add(cell.seed)
    for count in sorted({len(own) for own in held.values()} - {len(published)}):
        fewer = {where: own for where, own in held.items() if len(own) == count}
        found.append(f"{count} of {len(published)} seeds{_where(fewer, held)}")
    return found


def _where(some: Collection[tuple[str, str]], every: Collection[tuple[str, str]]) -> str:
    """Return the (column, row) places in words, a column whose rows are all among them by its name alone."""
    if len(some) == len(every):
        return ""
    texts, single = [], len({column for column, _ in every}) == 1
    for column in dict.fromkeys(column for column, _ in some):
        rows = [row for at, row in some if at == column]
        whole = len(rows) == sum(at == column for at, _ in every)
        own = "" if whole else ", ".join(rows)
        texts.append(own if single else f"{column}: {own}" if own else column)
    return f" ({'; '.join(texts)})"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def provisional(cells: Sequence[RunCell]) -> list[str]:
    """Return the settings that no source gives, as they stand here."""
    found: dict[str, None] = {}
    for cell in cells:
        values = {**cell.settings.model_dump(), **cell.settings.options}
        for name, why in cell.use.provisional.items():
            found[f"{name} {values.get(name)} ({why})"] = None
    return list(found)


def apart(cells: Sequence[RunCell], filled: Sequence[FilledCell]) -> set[tuple[str, str]]:
    """Return the (row, column) of what was not trained as published, its precision aside."""
    found = {
        (cell.row, cell.column)
        for cell in cells
        if any(not text.startswith("precision ") for text in cell.use.overridden)
    }
    for one in filled:
        data = one.match.entry.manifest.data
        few = (data.train_samples or math.inf) < data_catalogue.record(data.name).expected["train"]
        if one.match.round < one.cell.settings.rounds or few:
            found.add((one.cell.row, one.cell.column))
    return found


def training_samples(filled: Sequence[FilledCell]) -> list[str]:
    found = []
    for name in dict.fromkeys(one.match.entry.manifest.data.name for one in filled):
        expected = data_catalogue.record(name).expected["train"]
        found += [
            f"{used:,} of the {expected:,}{TRAINED_ON}{name}{where}"
            for used, where in _training_samples(filled, name).items()
            if used < expected
        ]
    return found


def of_some(reductions: Sequence[str]) -> list[str]:
    """Return those about training data that name their cells: the others had other data."""
    return [text for text in reductions if TRAINED_ON in text and text.endswith(")")]


def notes(filled: Sequence[FilledCell]) -> list[str]:
    """Return warnings on results: of an older fedscope, with errors that are not known."""
    found = []
    old = {one.cell.row for one in filled for record in one.records.values() if _is_old(record)}
    if old:
        found.append(f"measured by an earlier version of fedscope: {', '.join(sorted(old))}")
    without = {one.cell.row for one in filled for record in one.records.values() if _of_few_rows(record)}
    if without:
        found.append(
            "H_N and H_D: errors over the probes alone; those over the clients' rows, which may be several "
            f"times as large, are not known: {', '.join(sorted(without))}"
        )
    return found


def _of_few_rows(record: Kept) -> bool:
    if not isinstance(record, HessianRecord) or record.problem.reading != "paper":
        return False
    cross = record.cross_client
    return cross is not None and cross.populations is None


def divergences(diverged: Sequence[tuple[RunCell, RunEntry]]) -> list[str]:
    return [
        f"{DIVERGED}: {cell.row}, seed {cell.seed}, in round {entry.manifest.diverged}"
        for cell, entry in diverged
    ]


def undrawn(recipe: Recipe, cells: Sequence[RunCell], shown: Collection[str]) -> list[str]:
    """Name the rows of ``cells`` that a figure does not show; a table has an empty cell for each."""
    rows = [row for row in recipe.rows if row in {cell.row for cell in cells} - {*shown}]
    if recipe.kind not in DRAWN or not rows:
        return []
    return [f"not drawn, since the registry has no run or no result of it: {', '.join(rows)}"]


def _training_samples(filled: Sequence[FilledCell], name: str) -> dict[int, str]:
    """Return how many training samples a data set had, and where unless always so many."""
    places: dict[int, dict[str, list[str]]] = {}
    for one in filled:
        data = one.match.entry.manifest.data
        if data.name == name and data.train_samples and one.cell.settings.train_samples is None:
            rows = places.setdefault(data.train_samples, {}).setdefault(one.cell.column, [])
            rows += [one.cell.row] * (one.cell.row not in rows)
    if len(places) == 1:
        return dict.fromkeys(places, "")
    return {used: f" ({'; '.join(map(_named, at, at.values()))})" for used, at in places.items()}


def _named(column: str, rows: Sequence[str]) -> str:
    return f"{column}: {', '.join(rows)}" if column else ", ".join(rows)


def _is_old(record: Kept) -> bool:
    return bool(record.versions) and record.versions.get("fedscope") != versions().get("fedscope")
