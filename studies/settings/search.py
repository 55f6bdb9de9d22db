"""The search of lost settings: which training, and how many of its rounds, the printed accuracies are of.

The recipe trains its rows under columns of candidate settings. Each is compared, at every
number of rounds T along it, with every printed column of another recipe: the best accuracy by T/2 and by T.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedscope.reproduce.recipes.spec import Recipe, from_table
from studies.study import own_table

NAME = "fedfor/table2-settings"
HERE = Path(__file__).parent
COMPARED = ("best_half_accuracy", "best_accuracy")


@dataclass(frozen=True)
class Search:
    """What is explained, and the errors with which printed and trained numbers are compared.

    The spread between trainings is that of the printed deviations; the rest of the errors is stated here.
    """

    of: str  # the recipe whose printed numbers are explained
    trainings: int  # in a printed mean
    correlation: float  # between the two numbers of a training
    common: float  # the share of a training's variance that its seed gives to all methods alike
    dof: float  # of Student's t: how little the spreads are known
    rows: Mapping[str, str] = field(default_factory=dict)  # ours → the printed one; without: of its own label
    open: Mapping[str, str] = field(default_factory=dict)  # settings that were not tried, and why

    def printed_row(self, row: str) -> str:
        """Return the printed row that one of ours stands for: several may, each with other options."""
        return self.rows.get(row, row)


@dataclass(frozen=True, kw_only=True)
class SearchRecipe(Recipe):
    """A recipe whose columns are candidates."""

    search: Search


def search_recipe(scale: str = "paper") -> SearchRecipe:
    """Return the recipe at a scale."""
    own = own_table(HERE)
    return SearchRecipe(**vars(from_table(NAME, own, scale)), search=Search(**own["search"]))
