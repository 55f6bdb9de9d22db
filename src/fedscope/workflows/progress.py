"""Progress of long steps and notes beside the results, for the caller of a workflow."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

Progress = Callable[..., None]
"""Called with (steps done, steps in all, ``AtMost`` or None, text), as :mod:`fedscope.landscape` does."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""``stage(title)`` wraps a long step and yields its progress callback."""


@contextmanager
def silent(_title: str) -> Iterator[Progress]:
    yield lambda *_: None


def _ignore(_text: str) -> None:
    """Drop a note."""


@dataclass(frozen=True)
class Reporter:
    """Receives progress and notes of a workflow; by default none."""

    stage: Stage = silent
    rounds: Stage = silent  # of a training, each of whose rounds has a text of its own
    note: Callable[[str], None] = _ignore


SILENT = Reporter()


def duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds >= 1 else "less than 1 s"


def about(seconds: float, most: float | None = None) -> str:
    """Return ``about 9 s``, or of a range ``9 s to 45 s``; ``less than 1 s`` is said once."""
    ends = dict.fromkeys(duration(end) for end in (seconds, seconds if most is None else most))
    return " to ".join(ends) if most is not None or seconds < 1 else f"about {duration(seconds)}"
