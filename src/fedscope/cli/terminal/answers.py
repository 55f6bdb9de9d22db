"""Answers that are printed again: see :mod:`fedscope.workflows.results.answers`."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedscope.cli.terminal import console
from fedscope.storage import cache_dir
from fedscope.workflows import catalogues
from fedscope.workflows.results.answers import keep, kept, name_of, stamps


def answer(
    make: Callable[[], tuple[object, Sequence[console.Piece]]],
    json_target: str | None,
    rests: Iterable[Path],
    **asked: object,
) -> None:
    """Print an answer again, or make it, its content as JSON and what is shown of it, and keep it.

    Where other packages may have a say in it, it is always made.
    """
    paths = list(rests)
    file = None if catalogues.extended() else cache_dir() / "answers" / f"{name_of(asked)}.json"
    if give(file, json_target):
        return
    before = stamps(paths)
    content, shown = make()
    keep(file, before, content, shown)
    say(json_target, content, shown)


def give(path: Path | None, json_target: str | None) -> bool:
    """Print the answer that is kept at ``path``; return whether there is one that still holds."""
    found = kept(path) if path else None
    if found is not None:
        say(json_target, **found)
    return found is not None


def say(
    json_target: str | None,
    content: object,
    shown: Iterable[console.Piece],
    remarks: Iterable[console.Piece] = (),
) -> None:
    """Print an answer: its remarks, and its content as JSON or what is shown of it."""
    console.show(remarks)
    if not console.in_json(json_target, content):
        console.show(shown)
