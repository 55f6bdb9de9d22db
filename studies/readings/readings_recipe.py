"""The study's recipe: its readings, and what they measure of each cell."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fedscope.reproduce.plan import Plan
from fedscope.reproduce.recipes.run_cells import Choices, RunCell, cells
from fedscope.reproduce.recipes.spec import Recipe, from_table
from studies.readings.reading import Readings
from studies.study import own_table

NAME = "man/table2-readings"
HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class ReadingsRecipe(Recipe):
    """A recipe whose cells are measured under every reading."""

    readings: Readings


def readings_recipe(scale: str = "paper") -> ReadingsRecipe:
    """Return the recipe at a scale, which may have readings of its own."""
    own = own_table(HERE)
    table = {**own["readings"], **own["scales"].get(scale, {}).get("readings", {})}
    readings = Readings.from_table(table, own["likelihood"])
    return ReadingsRecipe(**vars(from_table(NAME, own, scale)), readings=readings)


def measured_cells(recipe: ReadingsRecipe, choices: Choices | None = None) -> list[RunCell]:
    """Return the cells with a measurement for each reading; a column of the server's models has no others."""
    template, found = recipe.measures["reading"], []
    for cell in cells(recipe, choices):
        method, server_only = recipe.rows[cell.row].split()[0], cell.model == "server"
        measures = recipe.readings.measures(template, method, server_only=server_only)
        found.append(replace(cell, measures=measures))
    return found


class ReadingsPlan(Plan):
    """The runs of such recipes, and their measurements."""

    @cached_property
    def cells(self) -> dict[str, list[RunCell]]:
        """Every recipe's cells."""
        recipes = [one for one in self.recipes if isinstance(one, ReadingsRecipe)]
        return {recipe.name: measured_cells(recipe, self.choices) for recipe in recipes}
