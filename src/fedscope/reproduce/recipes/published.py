"""The papers' own numbers, as printed: one file per paper in ``published``.

An empty value is one that is lost in the text; ``inferred`` ones are not printed in that cell, and the note
says where they come from.
"""

import csv
from functools import cache
from importlib.resources import files

from fedscope.records.artefact import PaperValue

Key = tuple[str, str, str, str]  # artefact, row, column, quantity


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
