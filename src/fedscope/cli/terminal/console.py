"""Everything about the terminal: progress, tables, notes, and JSON for programs.

Results go to standard output; progress and notes go to standard error: a step as a line that moves on a
terminal, elsewhere as one when it has ended and one every half a minute.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from fedscope.cli.terminal.fitted_tables import (
    TextColumn,
    fit,
    least_width,
    lines,
    parts,
    terminal_width,
    widths,
)
from fedscope.cli.terminal.pulse import LongStep, Pulse
from fedscope.cli.terminal.readable import STEERING, readable, safe
from fedscope.cli.terminal.verbosity import CURRENT
from fedscope.storage import write_text
from fedscope.workflows.progress import Progress as Steps
from fedscope.workflows.progress import Reporter

if TYPE_CHECKING:
    from fedscope.figures.text.hessian_table import Table as TextTable

T = TypeVar("T")
Piece = Sequence[Any]  # of what a command prints, as plain data
MOST_NOTES = 2  # below a table
PIPE = 160  # columns of a table in a file or a pipe


def errors() -> Console:
    """Return the console of standard error."""
    return Console(file=sys.stderr, highlight=False, emoji=False)


def note(text: str) -> None:
    """Print a line beside the results; not with ``-q``."""
    PULSE.said()
    if not CURRENT.quiet:
        errors().print(_shown(text), style="dim", soft_wrap=True)


def _beat(text: str) -> None:
    first = os.environ.get("RANK", "0") == "0"  # of torchrun's processes
    if first and not (PULSE.step and errors().is_terminal):  # where a line is there and moves
        note(text)


PULSE = Pulse(_beat)
"""Says what is at work where nothing else was said for half a minute."""


@contextmanager
def progress(title: str, *, lines: bool = False, least: float = 0.0, moving: bool = True) -> Iterator[Steps]:
    """Show a long step; ``lines`` prints each report's text as a line where there is no terminal.

    Of one that took less than ``least`` seconds nothing stays. One of several processes draws no ``moving``
    line.
    """
    console, step = errors(), LongStep(_plain(title))
    shown = moving and console.is_terminal and not CURRENT.quiet

    def report(done: int, total: int | None = None, text: str = "", /) -> None:
        step.report(done, total, _plain(text))
        if lines and not console.is_terminal:
            note(f"{title} {done}/{total}: {text}")

    def drawn() -> Text:
        return Text(step.drawn(console.width), no_wrap=True)

    line = Live(get_renderable=drawn, console=console, transient=True) if shown else nullcontext()
    with PULSE.during(step), line:
        yield report
    text = f": {step.text}" if step.text and not lines else ""
    if step.elapsed >= least:
        note(f"{title}: {step.done} in {step.elapsed:.1f} s{text}")


REPORTER = Reporter(progress, partial(progress, lines=True), note)
"""Shows progress and notes of a workflow on the terminal."""
AT_ENDS = Reporter(partial(progress, moving=False), partial(progress, moving=False), note)
"""Says a step when it has ended: for processes that share a terminal."""


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    text_columns: int = 1,
    drop: Sequence[str] = (),
) -> None:
    """Print a table to standard output; its first ``text_columns`` are text, the others aligned right.

    Where the terminal is too narrow, columns of ``drop`` are left out, the first of it first, and named
    below; what still does not fit, and all with ``-v``, goes on in a table below with the first column again.
    """
    shown = [[_plain(name), *(_plain(row[i]) for row in rows)] for i, name in enumerate(columns)]
    every = [TextColumn(name, tuple(shown[i]), is_text=i < text_columns) for i, name in enumerate(columns)]
    width = terminal_width()
    kept, left_out = fit(every, width, () if CURRENT.verbose else drop)
    for place, part in enumerate(parts(kept, width)):
        _print_part(None if place else title, part, width)
    if left_out:
        notes = [*footnotes(notes), f"not shown in {width} columns: {', '.join(left_out)} (see -v or --json)"]
    else:
        notes = footnotes(notes)
    for line in notes:
        print_text(line, style="dim")


def print_text(text: str, style: str | None = None) -> None:
    """Print a text to standard output, folded between words where a terminal's line ends."""
    width = terminal_width()
    console = Console(file=sys.stdout, highlight=False, emoji=False, width=width)
    console.print(_shown(text), style=style, soft_wrap=width is None)


def show(pieces: Iterable[Piece]) -> None:
    """Print pieces in their order: ("note", text), ("line", text), ("text", text), ("table", arguments…).

    A table's named arguments are the last one, as a dictionary.
    """
    ways: dict[str, Callable[..., None]] = {
        "note": note,
        "line": print,
        "text": print_text,
        "table": print_table,
    }
    for way, *arguments in pieces:
        named = arguments.pop() if isinstance(arguments[-1], dict) else {}
        ways[way](*arguments, **named)


def piece(table: "TextTable") -> Piece:
    """Return a table as a piece of what a command prints."""
    return "table", table.title, table.columns, table.rows, table.notes


def _print_part(title: str | None, columns: Sequence[TextColumn], width: int | None) -> None:
    room = max(least_width(columns), PIPE if width is None else width)
    console = Console(file=sys.stdout, highlight=False, emoji=False, width=room)
    if title is not None:
        console.print(_shown(title), style="bold")
    heading, *rows = lines(columns, widths(columns, room))
    console.print(Text(readable(heading), style="bold"), soft_wrap=True)
    print(readable("\n".join(rows)))


def footnotes(notes: Sequence[str]) -> Sequence[str]:
    """Return the notes below a table: two, and how many more ``-v`` shows, or all with it."""
    more = len(notes) - MOST_NOTES
    if CURRENT.verbose or more <= 0:
        return notes
    *first, last = notes[:MOST_NOTES]
    return [*first, f"{last} ({more} more with -v)"]


def cell(value: object) -> str:
    """Return a value as a table shows it."""
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")  # a text to read: its minus is no hyphen
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "–"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)


def percent(value: object) -> str:
    """Return a share, such as an accuracy, as a table shows it."""
    return f"{value:.2%}" if isinstance(value, float | int) and not isnan(value) else cell(None)


def in_json(target: str | None, content: object) -> bool:
    """Write ``content`` where ``--json`` says, if it does; return whether it is all that is to be printed."""
    if target is not None:
        write_json(target, content)
    return target == "-"


def one_or_all(records: Sequence[T]) -> T | Sequence[T]:
    """Return what ``--json`` gives of results: of one its record, of several a list."""
    return records[0] if len(records) == 1 else records


def write_json(target: str, content: object) -> None:
    """Write ``content`` to standard output (``-``) or atomically to a file."""
    plain = target == "-" and "utf" not in (sys.stdout.encoding or "utf-8").lower()
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=plain) + "\n"
    text = STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text)
    if target == "-":
        print(text, end="")
        return
    write_text(Path(target), text, below=None)


def _plain(text: str) -> str:
    return text if text.isascii() and text.isprintable() else readable(safe(text))


def _shown(text: str) -> str:
    return escape(_plain(text))
