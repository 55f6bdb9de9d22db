"""The search as a study: from the artefact's cells to its page, figure and sentence."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel
from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import Recipe
from studies.settings.likely_settings import between, grid_of, search_of
from studies.settings.search import HERE, NAME, SearchRecipe, search_recipe
from studies.settings.search_record import SearchRecord, SearchResult
from studies.study import Inferred, filled_in


class SearchStudy:
    """Which settings FedFOR's Table 2 is most likely of."""

    name = NAME

    def recipe(self, scale: str) -> SearchRecipe:
        """Return the artefact's recipe at a scale."""
        return search_recipe(scale)

    def plan(self, recipe: Recipe, choices: Choices, place: BuildSettings, *, partial: bool) -> Plan:
        """Return the plan of its runs."""
        return Plan((recipe,), choices, place, partial=partial)

    def infer(self, recipe: Recipe, record: ArtefactRecord, filled: Sequence[FilledCell]) -> Inferred:
        """Return the artefact with every candidate's likelihood."""
        assert isinstance(recipe, SearchRecipe)
        entry = search_of(recipe, filled)
        search = SearchRecord.read(entry)
        return Inferred(
            record.edited(kind="search", search=entry, grid=grid_of(entry)),
            drawn(record, search),
            page(search, record.scale),
            sentence(search),
        )


def page(search: SearchRecord, scale: str) -> str:
    """Return the artefact's page below its table."""
    return filled_in(HERE, "page.md", scale=scale, search=search, between=between)


def sentence(search: SearchRecord) -> str:
    """Return what the paper's page says of the likeliest settings."""
    return filled_in(HERE, "sentence.md", search=search, likely=likeliest(search), between=between)


def likeliest(search: SearchRecord) -> list[SearchResult]:
    """Return the most likely candidate of each printed column that some candidate reaches."""
    first: dict[str, SearchResult] = {}
    for one in search.results:
        if not one.short:
            first.setdefault(one.column, one)
    return list(first.values())


def drawn(record: ArtefactRecord, search: SearchRecord) -> list[Figure]:
    """Draw the best accuracy by round of every candidate, and the printed ones where they fit best."""
    if not record.drawn:
        return []
    lines, several = [], len({one.row for one in record.drawn}) > 1
    for one in record.drawn:
        name = f"{one.row}, {one.column}" if several else one.column
        best = 100 * np.fmax.accumulate(np.array(one.accuracy, dtype=np.float64))
        lines.append(Line(name, np.arange(1.0, len(best) + 1), best))
    for found in likeliest(search):
        at = {"best_half_accuracy": found.rounds // 2, "best_accuracy": found.rounds}
        x = np.array([at[cell.quantity] for cell in found.entries])
        y = np.array([cell.printed for cell in found.entries])
        spread = np.array([search.spread[cell.quantity] for cell in found.entries])
        lines.append(Line(f"{found.column}, printed", x, y, spread * y, points=True))
    panel = Panel(lines, "round", "best test accuracy so far (%)")
    caption = (
        "points: the paper's numbers, at the rounds T/2 and T of the likeliest candidate; ± spread between "
        "trainings"
    )
    return [panels_figure([panel], caption=caption if len(lines) > len(record.drawn) else "")]
