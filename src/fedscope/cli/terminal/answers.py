"""Stored answers on the terminal: see :mod:`fedscope.workflows.results.stored_answers`."""

from collections.abc import Callable, Iterable
from pathlib import Path

from fedscope.cli.terminal import console
from fedscope.storage import cache_dir
from fedscope.workflows import catalogues
from fedscope.workflows.results.stored_answers import Answer, name_of, stamps, store, stored


def print_or_make(
    make: Callable[[], Answer], json_target: str | None, rests: Iterable[Path], **question: object
) -> None:
    """Print the stored answer to a question, or make, store and print it; it rests on the files ``rests``.

    Where other packages may add to it, it is always made.
    """
    paths = list(rests)
    file = None if catalogues.extended() else cache_dir() / "answers" / f"{name_of(question)}.json"
    if print_stored(file, json_target):
        return
    before = stamps(paths)
    answer = make()
    store(file, before, answer)
    print_answer(answer, json_target)


def print_stored(path: Path | None, json_target: str | None) -> bool:
    """Print the answer stored at ``path``; return whether there is one that still holds."""
    found = stored(path) if path else None
    if found is not None:
        print_answer(found, json_target)
    return found is not None


def print_answer(answer: Answer, json_target: str | None) -> None:
    """Print an answer: its remarks, and its content as JSON or what is shown of it."""
    console.show(answer.remarks)
    if not console.in_json(json_target, answer.content):
        console.show(answer.shown)
