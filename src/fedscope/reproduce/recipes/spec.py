"""A recipe: the runs of a table or figure of a paper, their measurements, and the paper's claims.

Recipes are in one ``.toml`` file per paper, each with what its recipes share (``notes`` of its tables,
``meanings`` of quantities, told where these are shown) and ``[recipes.NAME]``:

    table, title, source   where it is printed, and what it shows
    kind        table, curves, landscape, spectrum, density, sweep, dots, correlation, or (without runs) cost,
                traffic
    rows        label → method and options, added to the file's; instead of them with ``only_rows``
    columns     label → preset, or the fields of a :class:`Column`, and settings of `train`
    quantities  what is shown of each cell (:mod:`fedscope.reproduce.recipes.table_quantities`)
    measures    name → fields of :class:`~fedscope.reproduce.recipes.measures.Measure`
    panels      of ``dots``: the quantities of each panel; without them one each
    sweep       of a figure whose rows differ in one option: that option, and what the line is called
    claims      statements (:mod:`fedscope.reproduce.artefacts.claims`)
    spread_of   recipe and column whose seeds tell the spread between trainings, where those here do not
    scales      name → a :class:`RecipeScale`'s fields, and ``most_columns``: only the first so many;
                ``measures`` there change single fields of the recipe's, and ``notes`` are added to its notes

A cell is a row under a column; it has one run per seed. The scale ``paper`` is the experiment as published.
"""

import csv
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from fedscope.errors import UserError, suggestion
from fedscope.records.artefact import PaperValue
from fedscope.reproduce.recipes.measures import Measure, Model

Table = Mapping[str, Any]
Kind = Literal[
    "table", "curves", "landscape", "spectrum", "density", "sweep", "cost", "traffic", "dots", "correlation"
]
PAPERS = ("fedalign", "man", "fedfor", "fedasam", "fedgloss", "clients", "flatness")
# of which the last two are comparisons of our own
WITHOUT_RUNS = ("cost", "traffic")  # the same at every scale
SCALES = ("paper", "cpu", "smoke")
_COLUMN = ("preset", "model", "rows", "quantities", "published", "seeds")
Key = tuple[str, str, str, str]  # artefact, row, column, quantity


@dataclass(frozen=True)
class Column:
    """An experiment of the paper: a preset, and what differs from it here."""

    preset: str
    settings: Table = field(default_factory=dict)
    model: Model = "reported"  # which of a run's global models is measured
    rows: tuple[str, ...] | None = None  # which rows have this column; None: all
    quantities: tuple[str, ...] | None = None  # None: the recipe's
    published: str | None = None  # which of the paper's columns stands beside; None: that of the same label
    seeds: tuple[int, ...] | Mapping[str, tuple[int, ...]] | None = None  # of all rows, or of those named

    def seeds_of(self, row: str) -> tuple[int, ...] | None:
        """Return the seeds of a row; None: the scale's, else the preset's."""
        return self.seeds.get(row) if isinstance(self.seeds, Mapping) else self.seeds


@dataclass(frozen=True)
class RecipeScale:
    """The part of the published experiment that is run, and why not more."""

    name: str
    why: tuple[str, ...] = ()
    settings: Table = field(default_factory=dict)
    by_row: Mapping[str, Table] = field(default_factory=dict)  # further settings and options of single rows
    seeds: tuple[int, ...] | None = None  # None: the preset's
    rows: tuple[str, ...] | None = None  # None: all


@dataclass(frozen=True)
class Sweep:
    """The option in which a figure's rows differ, and what their line is called."""

    option: str
    label: str


@dataclass(frozen=True)
class Recipe:
    """One table or figure, at one scale."""

    name: str
    title: str
    table: str
    source: str
    kind: Kind
    scale: RecipeScale
    rows: Mapping[str, str]  # label → method and options
    columns: Mapping[str, Column]
    published_columns: tuple[str, ...]  # labels of those at scale ``paper``
    quantities: tuple[str, ...]
    measures: Mapping[str, Measure]
    claims: tuple[str, ...] = ()
    spread_of: tuple[str, str] | None = None  # recipe, column
    notes: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)  # of cost and traffic: network → data
    sweep: Sweep | None = None
    panels: tuple[tuple[str, ...], ...] = ()  # quantities

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    @property
    def stem(self) -> str:
        """The file that it is rendered to, without a suffix, below the gallery."""
        return f"{self.name}-{self.scale.name}"

    def shows(self, column: str) -> tuple[str, ...]:
        own = self.columns[column].quantities
        return self.quantities if own is None else own


def recipe(name: str, scale: str = "paper") -> Recipe:
    if name not in names():
        hint = suggestion(name, (*names(), *PAPERS, "all")) or "; `fedscope figures list` shows all"
        if any(name.startswith(f"{one}-") for one in names()):
            hint = "; what explains a table is built by a study of the repository: studies/README.md"
        raise UserError(f"unknown recipe {name!r}{hint}")
    if scale not in SCALES:
        raise UserError(f"unknown scale {scale!r}; choose one of {', '.join(SCALES)}")
    paper, _, own = name.partition("/")
    return from_table(name, _file(paper)["recipes"][own], scale)


def names() -> tuple[str, ...]:
    """Return every recipe's name, in the papers' order."""
    return tuple(f"{paper}/{own}" for paper in PAPERS for own in _file(paper)["recipes"])


@cache
def _file(paper: str) -> dict[str, Any]:
    text = (files("fedscope.reproduce") / f"{paper}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def from_table(name: str, own: Table, scale: str) -> Recipe:
    shared = _file(name.partition("/")[0])
    rows = {**({} if own.get("only_rows") else shared["rows"]), **own.get("rows", {})}
    every = {**rows, **own.get("scales", {}).get(scale, {}).get("more_rows", {})}
    ours, everyones = own.get("scales", {}).get(scale, {}), shared.get("scales", {}).get(scale, {})
    if own.get("kind") in WITHOUT_RUNS:
        scale, ours, everyones = "paper", {}, {}
    changes = {**everyones, **ours, "settings": {**everyones.get("settings", {}), **ours.get("settings", {})}}
    columns: dict[str, str | Table] = changes.get("columns") or own.get("columns") or {}
    most = changes.get("most_columns")
    return Recipe(
        name=name,
        title=own["title"],
        table=own["table"],
        source=shared["source"],
        kind=own.get("kind", "table"),
        scale=RecipeScale(
            scale,
            (*everyones.get("why", ()), *ours.get("why", ())),
            changes["settings"],
            changes.get("by_row", {}),
            _tuple(changes.get("seeds") or own.get("seeds")),
            _tuple(changes.get("rows")),
        ),
        rows={**{label: every[label] for label in changes.get("rows", ())}, **every},
        columns={label: _column(entry) for label, entry in list(columns.items())[:most]},
        published_columns=tuple(own.get("columns", ())),
        quantities=tuple(own.get("quantities", ())),
        measures=_measures(shared, own, everyones, ours),
        claims=tuple(own.get("claims", ())),
        spread_of=_tuple(changes.get("spread_of")),
        notes=(*_shared_notes(shared, own), *own.get("notes", ()), *ours.get("notes", ())),
        models=own.get("models", {}),
        sweep=Sweep(**own["sweep"]) if "sweep" in own else None,
        panels=tuple(map(tuple, own.get("panels", ()))),
    )  # fmt: skip


def _shared_notes(shared: Table, own: Table) -> Iterator[str]:
    if own.get("kind", "table") == "table":
        yield from shared.get("notes", ())
    meanings = shared.get("meanings", {})
    yield from (meanings[name] for name in meanings if name in own.get("quantities", ()))


def _column(entry: str | Table) -> Column:
    if isinstance(entry, str):
        return Column(entry)
    return Column(
        entry["preset"],
        {key: value for key, value in entry.items() if key not in _COLUMN},
        entry.get("model", "reported"),
        _tuple(entry.get("rows")),
        _tuple(entry.get("quantities")),
        entry.get("published"),
        _seeds(entry.get("seeds")),
    )


def _measures(*sources: Table) -> Mapping[str, Measure]:
    merged: dict[str, dict[str, Any]] = {}
    for source in sources:
        for name, fields in source.get("measures", {}).items():
            merged[name] = {**merged.get(name, {}), **fields}
    return {name: Measure.from_table(fields) for name, fields in merged.items()}


def _seeds(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {row: _tuple(seeds) for row, seeds in values.items()}
    return _tuple(values)


def _tuple(values: Any) -> Any:
    return None if values is None else tuple(values)


def printed(recipe: str, row: str, column: str, quantity: str) -> PaperValue | None:
    paper, _, artefact = recipe.partition("/")
    return table(paper).get((artefact, row, column, quantity))


@cache
def table(paper: str) -> dict[Key, PaperValue]:
    path = files("fedscope.reproduce") / "published" / f"{paper}.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return {
        (row["artefact"], row["row"], row["column"], row["quantity"]): PaperValue(
            value=row["value"], std=row["std"], inferred=bool(row["inferred"]), note=row["note"]
        )
        for row in rows
    }
