"""The spread between trainings where a column has no row with several seeds.

It is that of another recipe's column (``spread_of``), else that of the deviations that the paper prints.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fedscope.federated.setup.paper_presets import preset
from fedscope.records.artefact import PaperValue
from fedscope.reproduce.artefacts.claims import Statement
from fedscope.reproduce.artefacts.row_differences import Samples, SeedSpread, spread_between_seeds
from fedscope.reproduce.recipes.published import printed
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.recipes.table_quantities import QUANTITIES


def borrowed_spreads(recipe: Recipe, elsewhere: Samples) -> dict[str, SeedSpread]:
    """Return the spreads by quantity; ``elsewhere`` is one column of another recipe."""
    places = sorted({(name, column) for _, column, name in elsewhere})
    measured = {name: spread_between_seeds(elsewhere, column, name) for name, column in places}
    source = recipe.spread_of[0] if recipe.spread_of else ""
    ours = {name: replace(spread, source=source) for name, spread in measured.items() if spread}
    theirs = {name: spread for name in _judged(recipe) if (spread := _printed_spread(recipe, name))}
    return {**theirs, **ours}


def borrowed_notes(recipe: Recipe, samples: Samples, spreads: Mapping[str, SeedSpread]) -> list[str]:
    found: dict[str, list[str]] = {}
    for name in _judged(recipe):
        columns = {column for _, column, other in samples if other == name}
        alone = any(not spread_between_seeds(samples, column, name) for column in columns)
        if alone and (one := spreads.get(name)):
            size = f"{100 * one.value if one.relative else one.value:.2g}{' %' * one.relative}"
            found.setdefault(_origin(recipe, one), []).append(f"{QUANTITIES[name].title} {size}")
    return [f"spread between trainings: {origin}: {', '.join(sizes)}" for origin, sizes in found.items()]


def _origin(recipe: Recipe, spread: SeedSpread) -> str:
    if not spread.rows:
        return "of the deviations that the paper prints"
    return f"of the seeds of {' and '.join(spread.rows)} in {' under '.join(recipe.spread_of or ())}"


def _judged(recipe: Recipe) -> list[str]:
    return list(dict.fromkeys(Statement.read(text).quantity for text in recipe.claims))


def _printed_spread(recipe: Recipe, quantity: str) -> SeedSpread | None:
    """Return the deviation between a paper's trainings, pooled over its cells."""
    relative, squares, dof = QUANTITIES[quantity].measure is not None, 0.0, 0
    for paper, trainings in _printed(recipe, quantity):
        if paper.number and paper.spread:
            squares += (trainings - 1) * (paper.spread / (paper.number if relative else 1.0)) ** 2
            dof += trainings - 1
    return SeedSpread(math.sqrt(squares / dof), dof, relative, (), "the paper") if dof else None


def _printed(recipe: Recipe, quantity: str) -> Iterator[tuple[PaperValue, int]]:
    """Yield every printed cell of a quantity, and the number of trainings that it is of."""
    columns = {column.published or label: column.preset for label, column in recipe.columns.items()}
    for label, experiment in columns.items():
        for row in recipe.rows:
            if paper := printed(recipe.name, row, label, quantity):
                yield paper, len(preset(experiment).seeds)
