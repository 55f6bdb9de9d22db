"""A study: the runs and measurements of a recipe of its own, and what is inferred from them.

It writes the files that `fedscope figures build` would, with a figure and a part of the page of its own, and
``RECIPE-SCALE.txt``, its sentence on the paper's page, which `fedscope figures index` reads.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jinja2 import FileSystemLoader
from matplotlib.figure import Figure

from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.artefacts.record_of_cells import assemble
from fedscope.reproduce.build import command, completed
from fedscope.reproduce.gallery.gallery import SENTENCE, why_not_overwrite, write
from fedscope.reproduce.gallery.render import environment
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices, cells
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.runs.computations import Log
from fedscope.storage import remove, write_text


@dataclass(frozen=True)
class Inferred:
    """What a study adds to an artefact."""

    record: ArtefactRecord  # with the study's own entries
    figures: Sequence[Figure]
    page: str  # Markdown below the table
    sentence: str  # on the paper's page, in Markdown; empty: none


class Study(Protocol):
    """An inference, and the artefact that it is in."""

    name: str  # of the artefact

    def recipe(self, scale: str) -> Recipe:
        """Return the artefact's recipe at a scale."""
        ...

    def plan(self, recipe: Recipe, choices: Choices, place: BuildSettings, *, partial: bool) -> Plan:
        """Return the plan of its runs and measurements."""
        ...

    def infer(self, recipe: Recipe, record: ArtefactRecord, filled: Sequence[FilledCell]) -> Inferred:
        """Return the artefact with what its cells say."""
        ...


def build(
    study: Study, recipe: Recipe, choices: Choices, place: BuildSettings, say: Log, *, partial: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """Train and measure what is missing, then write the artefact; return the files, and the faults.

    Args:
        study: what is inferred.
        recipe: the study's, at its scale.
        choices: what the user narrows of it.
        place: registry, gallery, and how to compute.
        say: is called with every step.
        partial: train nothing; an unfinished run fills its cell with its rounds so far.
    """
    plan, faults = completed(study.plan(recipe, choices, place, partial=partial), say)
    filled, name = plan.filled[recipe.name], recipe.name
    text = command(recipe, choices, place.registry, partial=partial)
    record = assemble(recipe, cells(recipe, choices), filled, text, plan.diverged[name])
    found = study.infer(recipe, record, filled)
    if why := why_not_overwrite(found.record, place.out):
        return [], {**faults, f"writing {name}": why}
    written = write(found.record, place.out, drawn=found.figures, further=found.page)
    sentence = Path(f"{place.out / recipe.stem}{SENTENCE}")
    if found.sentence:
        write_text(sentence, found.sentence + "\n", below=None)
        written.append(sentence)
    else:
        remove(sentence, below=place.out, missing_ok=True)
    return written, faults


def own_table(folder: Path) -> dict[str, Any]:
    """Return the recipe in a study's folder."""
    return tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))


def filled_in(folder: Path, template: str, **context: object) -> str:
    """Return a template in a study's folder, filled as those of the gallery are."""
    own = environment().overlay(loader=FileSystemLoader(folder))
    own.filters = {**own.filters, "percent": percent}
    return own.get_template(template).render(context).rstrip("\n")


def percent(share: float) -> str:
    """Return a share in percent."""
    return "< 0.1 %" if 0 < share < 0.001 else f"{100 * share:.{0 if share >= 0.1 else 1}f} %"
