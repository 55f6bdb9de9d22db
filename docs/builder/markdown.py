"""Pieces of Markdown: text that stays text, tables, definition lists."""

import re
from collections.abc import Iterable, Sequence


def escaped(text: str) -> str:
    """Return plain text as Markdown that shows it; what stands in backticks stays code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", part) for part in parts
    )


def cell(text: str) -> str:
    """Return text as a cell of a table: on one line, without a bar that would end it."""
    return " ".join(text.split()).replace("|", "&#124;")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)]) + "\n"


def fence(language: str, code: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{code.rstrip()}\n```\n"


def prose(docstring: str) -> str:
    """Return a docstring of the sources as Markdown: its roles and double backticks as code."""
    text = re.sub(r":[a-z]+:`~?([^`]+)`", lambda found: f"`{found[1]}`", docstring)
    return escaped(text.replace("``", "`"))
