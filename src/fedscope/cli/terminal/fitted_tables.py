"""Tables that fit the terminal: which columns are shown, how wide each is, what goes on below."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

PROSE = 24  # columns that a text of several words takes at least
GAP = 3  # columns between two cells


@dataclass(frozen=True)
class TextColumn:
    """A column: its cells with the heading first, and the widths it may have."""

    name: str
    cells: tuple[str, ...]
    is_text: bool  # aligned left, and broken between words where it must be

    @cached_property
    def widest(self) -> int:
        """The width in which no cell is broken."""
        return max(map(cell_len, set(self.cells)))

    @cached_property
    def least(self) -> int:
        """The width in which no word is broken."""
        if not self.is_text:
            return self.widest
        words = max((cell_len(word) for cell in set(self.cells) for word in cell.split()), default=0)
        return max(words, min(self.widest, PROSE))


def terminal_width() -> int | None:
    """Return the columns of the terminal, or those that COLUMNS asks for; None for a file or a pipe."""
    if (asked := os.environ.get("COLUMNS", "")).isdecimal() and int(asked):
        return int(asked)
    return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None


def fit(
    columns: Sequence[TextColumn], width: int | None, drop: Sequence[str]
) -> tuple[list[TextColumn], list[str]]:
    """Return the columns that are shown, and the names of those that are left out.

    Of the columns in ``drop`` so many are left out, the first of it first, as make the rest fit.
    """
    shown, left_out = list(columns), []
    for name in drop:
        if width is None or least_width(shown) <= width:
            break
        left_out += [column.name for column in shown if column.name == name]
        shown = [column for column in shown if column.name != name]
    return shown, left_out


def parts(columns: Sequence[TextColumn], width: int | None) -> list[list[TextColumn]]:
    """Return the columns as tables below each other that each fit; every one begins with the first column."""
    first, *others = columns
    result = [[first]]
    for column in others:
        if width is not None and len(result[-1]) > 1 and least_width([*result[-1], column]) > width:
            result.append([first])
        result[-1].append(column)
    return result


def widths(columns: Sequence[TextColumn], width: int) -> list[int]:
    """Return the width of each column: the least, and what is left of ``width`` to those that lack most."""
    result = [column.least for column in columns]
    spare = width - least_width(columns)
    lacking = sorted(range(len(columns)), key=lambda i: columns[i].widest - columns[i].least)
    for place, index in enumerate(lacking):
        more = min(columns[index].widest - columns[index].least, max(spare, 0) // (len(lacking) - place))
        result[index] += more
        spare -= more
    return result


def least_width(columns: Sequence[TextColumn]) -> int:
    """Return the width in which no word of any column is broken."""
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def lines(columns: Sequence[TextColumn], sizes: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a table: the headings, a rule, the rows; a cell that is too long is folded.

    So a hundred thousand rows take seconds; a table of rich's takes as many minutes.
    """
    heading, *rows = zip(*(column.cells for column in columns), strict=True)
    sides = [str.ljust if column.is_text else str.rjust for column in columns]
    yield from _row(heading, sizes, sides, " ┃ ")
    yield "━╇━".join("━" * size for size in sizes)
    for cells in rows:
        yield from _row(cells, sizes, sides, " │ ")


def _row(
    cells: Sequence[str], sizes: Sequence[int], sides: Sequence[Callable[[str, int], str]], between: str
) -> Iterator[str]:
    folded = [_folded(cell, size) for cell, size in zip(cells, sizes, strict=True)]
    for parts in zip_longest(*folded, fillvalue=""):
        yield between.join(
            side(part, size if part.isascii() else size - cell_len(part) + len(part))  # wide letters take two
            for part, size, side in zip(parts, sizes, sides, strict=True)
        )


def _folded(cell: str, size: int) -> list[str]:
    if (len(cell) if cell.isascii() else cell_len(cell)) <= size and "\n" not in cell:
        return [cell]
    return [line.plain.rstrip() for line in Text(cell).wrap(Console(), size, overflow="fold")]
