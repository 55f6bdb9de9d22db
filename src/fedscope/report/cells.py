"""Tables as the page shows them: cells that can be sorted, marked and left unresolved."""

from dataclasses import dataclass

from fedscope.figures.numbers import format_estimate
from fedscope.report.subjects import Record
from fedscope.statistics.resolution import UNRESOLVED, entry_resolved

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


def measured(entry: Record | None, *errors: str, mark: str | None = None) -> Cell:
    """Return the cell of a value with its ``errors``; λ_max and trace without a value are not finite."""
    if entry is None:
        return Cell(NOT_MEASURED, missing=True)
    return Cell(
        format_estimate(entry["value"], *(entry.get(name) for name in errors)), entry["value"], mark=mark
    )


def compared(entry: Record | None, symbol: str, mark: str | None = None) -> Cell:
    """Return the cell of an H_N or H_D, which ``symbol`` says, with its error; it may be unresolved."""
    if entry is not None and not entry_resolved(entry, symbol):
        return Cell(UNRESOLVED, missing=True)
    return measured(entry, "stderr", mark=mark)
