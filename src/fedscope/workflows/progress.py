"""What a workflow tells its caller while it runs: how far each long step is, and notes beside its results."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

Progress = Callable[..., None]
"""Called with (steps done, steps in all or None, text), as :mod:`fedscope.landscape` does."""
Stage = Callable[[str], AbstractContextManager[Progress]]
"""``stage(title)`` wraps a long step and yields its progress callback."""


@contextmanager
def silent(_title: str) -> Iterator[Progress]:
    """Show nothing of a long step."""
    yield lambda *_: None


def _ignore(_text: str) -> None:
    """Leave a note unsaid."""


@dataclass(frozen=True)
class Reporter:
    """Where a workflow's words go; by default nowhere."""

    stage: Stage = silent
    rounds: Stage = silent  # of a training, each of whose rounds has a text of its own
    note: Callable[[str], None] = _ignore


SILENT = Reporter()
