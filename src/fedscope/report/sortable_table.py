"""Tables as the page shows them: cells that can be sorted, marked and left unresolved."""

import math
from dataclasses import dataclass

from fedscope.figures.digits import format_estimate, leading_number
from fedscope.figures.text.hessian_table import ABSENT
from fedscope.records.estimates import EstimateEntry, Symbol
from fedscope.statistics.resolution import UNRESOLVED

NOT_MEASURED, UNSAID = "not measured", "not said"


@dataclass(frozen=True)
class Cell:
    """What a cell says, and the number that it is sorted by."""

    text: str
    value: float | str | None = None  # None: comes last, whichever way
    color: str | None = None  # of a swatch before the text
    missing: bool = False
    mark: str | None = None  # what sets the cell apart: "lowest"


@dataclass(frozen=True)
class SortableTable:
    """A table for the page: each row as long as ``columns``."""

    id: str  # of its heading; unique in the page
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()  # (what is not measured, the command that measures it)


MISSING = Cell(NOT_MEASURED, missing=True)


def told(text: str) -> Cell:
    """Return the cell of a text, sorted by the number that it begins with, if there is one."""
    if text == ABSENT:
        return Cell(text)
    number = leading_number(text)
    return Cell(text, text if number is None else number)


def measured(value: float, *stderrs: float, within: float = 0.0, mark: str | None = None) -> Cell:
    return Cell(
        format_estimate(value, *stderrs, within=within), None if math.isnan(value) else value, mark=mark
    )


def related(mean: EstimateEntry | None, symbol: Symbol, mark: str | None = None) -> Cell:
    """Return the cell of an H_N or H_D, which ``symbol`` says, with its error; it may be unresolved."""
    if mean is None:
        return MISSING
    if not mean.resolves(symbol):
        return Cell(UNRESOLVED, missing=True)
    return measured(mean.value, mean.stderr, mark=mark)
