"""The cells of a recipe, and the settings of the runs that can fill them.

A run fits a cell iff its settings are the cell's. Some settings do not count: how it was computed (device,
threads, stacks, compilation), what it kept, its target, and its precision and length, which the artefact
states instead: a longer run counts at the cell's round.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.schema import PresetUse
from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError
from fedscope.federated.setup.paper_presets import preset
from fedscope.federated.setup.resolved_settings import completed, settled
from fedscope.records.entries import Record
from fedscope.reproduce.recipes.measures import Measure, Model
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.recipes.table_quantities import QUANTITIES

UNCOUNTED = (
    "device", "threads", "stack", "compile", "save_clients", "keep_every", "keep_steps", "target", "rounds",
    "precision", "probe_curvature", "probe_samples",
)  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """The user's restrictions of a recipe's scale; each is a reduction that is printed."""

    seeds: tuple[int, ...] | None = None
    rows: tuple[str, ...] | None = None  # labels, or methods
    rounds: int | None = None  # at most


@dataclass(frozen=True)
class RunCell:
    """One run of a row under a column, and its measurements."""

    row: str
    column: str
    settings: Settings  # settled
    use: PresetUse  # what differs from the preset
    model: Model
    measures: Mapping[str, Measure]
    quantities: tuple[str, ...]

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def identity(self) -> str:
        return identity(self.settings)

    @property
    def needs_uploads(self) -> bool:
        return any(measure.uploads for measure in self.measures.values())

    def describe(self) -> Record:
        return {"row": self.row, "column": self.column, "seed": self.seed}


def identity(settings: Settings) -> str:
    every = completed(settings).model_dump(mode="json")
    counted = {key: value for key, value in every.items() if key not in UNCOUNTED}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def cells(recipe: Recipe, choices: Choices | None = None) -> list[RunCell]:
    """Return the cells of a recipe, by column, row and seed."""
    choices = choices or Choices()
    chosen = set(rows(recipe, choices.rows))
    return [
        cell
        for column in recipe.columns
        for row in recipe.rows
        if row in chosen and row in (recipe.columns[column].rows or recipe.rows)
        for cell in _seeds(recipe, row, column, choices)
    ]


def rows(recipe: Recipe, chosen: Sequence[str] | None) -> list[str]:
    """Return the rows at the recipe's scale that the user wants, by label or by method."""
    known = {label: method.split()[0] for label, method in recipe.rows.items()}
    wrong = [name for name in chosen or () if name not in {*known, *known.values()}]
    if wrong:
        raise UserError(f"{recipe.name} has no method {wrong[0]!r}; it has {', '.join(known.values())}")
    return [
        label
        for label, method in known.items()
        if label in (recipe.scale.rows or known) and (chosen is None or {label, method} & set(chosen))
    ]


def _seeds(recipe: Recipe, row: str, column: str, choices: Choices) -> Iterator[RunCell]:
    source, where, scale = preset(recipe.columns[column].preset), recipe.columns[column], recipe.scale
    method, *options = recipe.rows[row].split()
    own = scale.by_row.get(row, {})
    fields: dict[str, Any] = {"method": method, **scale.settings, **where.settings}
    fields |= {name: value for name, value in own.items() if "." not in name}
    if choices.rounds:
        fields["rounds"] = min(choices.rounds, fields.get("rounds") or source.settings["rounds"])
    given = dict(option.split("=", 1) for option in options)
    given |= {name: str(value) for name, value in own.items() if "." in name}
    shown = tuple(q for q in recipe.shows(column) if not QUANTITIES[q].static)
    for seed in choices.seeds or where.seeds_of(row) or scale.seeds or source.seeds:
        values, known, use = source.resolve({**fields, "seed": seed}, given)
        settings = settled(parse(Settings, values, "setting"), known)
        names = dict.fromkeys(QUANTITIES[q].measure for q in shown)
        measures = {name: recipe.measures[name] for name in names if name}
        yield RunCell(row, column, settings, use, where.model, measures, shown)
