"""What was measured of each method under a reading of a table, beside what is printed there."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean

from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.models import catalogue as model_catalogue
from fedscope.records.estimates import Entry
from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.spec import printed
from studies.readings.reading import Reading, label
from studies.readings.readings_recipe import ReadingsRecipe

QUANTITIES = ("lambda_max", "trace")


class Measured:
    """The results of all cells that have a run; methods with a run and printed numbers are its rows."""

    def __init__(self, recipe: ReadingsRecipe, filled: Sequence[FilledCell]) -> None:
        self._recipe, self.readings, self.filled = recipe, recipe.readings, filled
        with_a_run = {one.cell.row for one in filled}
        self.rows = [
            row for row in recipe.rows
            if row in with_a_run and all(self._printed(row, quantity) for quantity in QUANTITIES)
        ]  # fmt: skip
        self.reached = {
            row: max(one.match.round for one in filled if one.cell.row == row) for row in self.rows
        }
        self.last = max(self.reached.values(), default=0)
        self.early = {round for round in self.reached.values() if round < self.last}

    @property
    def base(self) -> Reading:
        """The reading that the others change."""
        return self.same(self.readings.base)

    @property
    def own_cells(self) -> list[FilledCell]:
        """The cells of each method's last round."""
        return [one for row, round in self.reached.items() for one in self.cells(row, round)]

    def same(self, reading: Reading) -> Reading:
        """Return the reading of these settings that the recipe has, with its number of draws."""
        wanted = replace(reading, draws=1)
        return next((one for one in self.readings.every if replace(one, draws=1) == wanted), reading)

    def printed(self, row: str) -> list[float]:
        """Return the paper's numbers of a method."""
        return [number for quantity in QUANTITIES if (number := self._printed(row, quantity))]

    def has(self, reading: Reading, row: str, round: int) -> bool:
        """Say whether a method was measured under a reading after a round, with every draw and seed."""
        return all(self.values(reading, row, round, quantity) for quantity in QUANTITIES)

    def mean(self, reading: Reading, row: str, round: int, quantity: str) -> float:
        """Return the geometric mean over draws and seeds."""
        return geometric_mean(self.values(reading, row, round, quantity))

    def values(self, reading: Reading, row: str, round: int, quantity: str) -> list[float]:
        """Return every draw's and seed's value; none where one is missing."""
        each = [self.of_cell(reading, one, quantity) for one in self.cells(row, round)]
        return [value for values in each for value in values] if all(each) else []

    def cells(self, row: str, round: int) -> list[FilledCell]:
        """Return the cells of a method after a round, one for each seed: of several the most measured."""
        found = [one for one in self.filled if (one.cell.row, one.match.round) == (row, round)]
        seeds = dict.fromkeys(one.cell.seed for one in found)
        return [
            max((one for one in found if one.cell.seed == seed), key=lambda one: len(one.records))
            for seed in seeds
        ]

    def of_cell(self, reading: Reading, one: FilledCell, quantity: str) -> list[float]:
        """Return the value of each draw in a cell; none where one is missing, or has no logarithm."""
        values = [entry.value for entry in self._entries(reading, one, quantity)]
        return values if all(math.isfinite(value) and value > 0 for value in values) else []

    def errors(self, reading: Reading, one: FilledCell, quantity: str) -> list[float]:
        """Return the relative error of each draw in a cell; infinite where it is not known."""
        entries = self._entries(reading, one, quantity)
        return [entry.error[0] / entry.value if entry.error else math.inf for entry in entries]

    def _entries(self, reading: Reading, one: FilledCell, quantity: str) -> list[Entry]:
        records = self._records(reading, one)
        found = (r.lambda_max if quantity == "lambda_max" else r.trace for r in records)
        return [entry for entry in found if entry]

    def weight_decay(self, row: str) -> tuple[float, float]:
        """Return what weight decay adds to λ_max and to the trace."""
        settings = next(one.cell.settings for one in self.filled if one.cell.row == row)
        data = data_catalogue.record(settings.dataset)
        network = model_catalogue.outline(str(settings.model), data.classes, data.channels)
        count = sum(parameter.numel() for parameter in network.parameters())
        return settings.weight_decay, settings.weight_decay * count

    def names(self, reading: Reading, one: FilledCell) -> tuple[str, ...]:
        """Return the name of each draw's measurement in a cell: some readings share them."""
        method = self._recipe.rows[one.cell.row].split()[0]
        return tuple(map(label, reading.measures(self._recipe.measures["reading"], method)))

    def _records(self, reading: Reading, one: FilledCell) -> list[HessianRecord]:
        wanted = self.names(reading, one)
        found = [one.records.get(name) for name in wanted]
        records = [record for record in found if isinstance(record, HessianRecord)]
        return records if len(records) == len(wanted) else []

    def _printed(self, row: str, quantity: str) -> float | None:
        column = next(one.cell.column for one in self.filled if one.cell.row == row)
        name = f"{self._recipe.paper}/{self.readings.of}"
        found = printed(name, row, self._recipe.columns[column].published or column, quantity)
        return found.number if found else None
