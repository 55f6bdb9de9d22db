"""The study of readings: from the artefact's cells to its page, figure and sentence."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.plan import BuildSettings
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import Recipe
from studies.readings.likely_readings import TITLES, grid_of, readings_of
from studies.readings.ratios import RatioRow, ratios_figure
from studies.readings.readings_recipe import HERE, NAME, ReadingsPlan, ReadingsRecipe, readings_recipe
from studies.readings.readings_record import ReadingsResult
from studies.readings.readings_texts import inference, unsettled
from studies.study import Inferred, filled_in, percent


class ReadingsStudy:
    """How MAN's Table 2 was most likely measured."""

    name = NAME

    def recipe(self, scale: str) -> ReadingsRecipe:
        """Return the artefact's recipe at a scale."""
        return readings_recipe(scale)

    def plan(self, recipe: Recipe, choices: Choices, place: BuildSettings, *, partial: bool) -> ReadingsPlan:
        """Return the plan of its runs and measurements."""
        return ReadingsPlan((recipe,), choices, place, partial=partial)

    def infer(self, recipe: Recipe, record: ArtefactRecord, filled: Sequence[FilledCell]) -> Inferred:
        """Return the artefact with every reading's likelihood."""
        assert isinstance(recipe, ReadingsRecipe)
        entry = readings_of(recipe, filled)
        readings = ReadingsResult.read(entry)
        return Inferred(
            record.edited(readings=entry, grid=grid_of(entry)),
            drawn(readings),
            page(readings, record.scale),
            sentence(readings),
        )


def page(readings: ReadingsResult, scale: str) -> str:
    """Return the artefact's page below its table."""
    return filled_in(HERE, "page.md", scale=scale, **inference(readings))


def sentence(readings: ReadingsResult) -> str:
    """Return what the paper's page says of the most likely reading; empty where none was measured."""
    if not readings.results:
        return ""
    best, ways = readings.results[0], len(readings.results)
    return filled_in(HERE, "sentence.md", ways=ways, best=best, unsettled=unsettled(readings))


def drawn(readings: ReadingsResult) -> list[Figure]:
    """Return the figure of what every reading expects, relative to what is printed; none without readings."""
    rows = [
        RatioRow(
            one.name,
            {
                title: {e.row: e.ratio for e in one.entries if e.quantity == quantity}
                for quantity, title in TITLES.items()
            },
            percent(one.share),
        )
        for one in readings.results
    ]
    caption = "the most likely reading first; hollow: alone, filled: with MAN; triangles: beyond the axis"
    return [ratios_figure(rows, x_label="expected / printed", note="share", caption=caption)] if rows else []
