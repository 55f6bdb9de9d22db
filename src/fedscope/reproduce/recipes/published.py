"""The papers' own numbers, as printed: one file per paper in ``published``.

An empty value is one that is lost in the text; ``inferred`` ones are not printed in that cell, and the note
says where they come from.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

Key = tuple[str, str, str, str]  # artefact, row, column, quantity


@dataclass(frozen=True)
class Printed:
    """A number of a paper, in its own digits."""

    value: str
    std: str = ""
    inferred: bool = False
    note: str = ""

    @property
    def number(self) -> float | None:
        """The value; None where it is lost, or is no number, as in ``500+``."""
        try:
            return float(self.value)
        except ValueError:
            return None

    @property
    def spread(self) -> float | None:
        """The standard deviation that is printed with it, if one is."""
        return float(self.std) if self.std else None


def printed(recipe: str, row: str, column: str, quantity: str) -> Printed | None:
    """Return the paper's number in a cell of a recipe, if it has one."""
    paper, _, artefact = recipe.partition("/")
    return table(paper).get((artefact, row, column, quantity))


@cache
def table(paper: str) -> dict[Key, Printed]:
    """Return all numbers of a paper."""
    path = files("fedscope.reproduce") / "published" / f"{paper}.csv"
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return {
        (row["artefact"], row["row"], row["column"], row["quantity"]): Printed(
            row["value"], row["std"], bool(row["inferred"]), row["note"]
        )
        for row in rows
    }
