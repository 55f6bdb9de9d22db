"""Tables as the page shows them: cells that can be sorted, marked and left unresolved."""

import math
from dataclasses import dataclass

from fedscope.figures.digits import ABSENT, format_entry, leading_number
from fedscope.records.estimates import Entry

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


def measured(entry: Entry | None, mark: str | None = None) -> Cell:
    """Return the cell of a number with its errors; it may be unresolved, or not measured."""
    if entry is None:
        return MISSING
    if not entry.is_resolved:
        return Cell(format_entry(entry), missing=True)
    return Cell(format_entry(entry), None if math.isnan(entry.value) else entry.value, mark=mark)
