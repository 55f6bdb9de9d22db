"""Notes and progress of the Python face: notes go to the log ``fedscope``, bars to standard error."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedscope.choices import AtMost
from fedscope.workflows.progress import Progress as Steps
from fedscope.workflows.progress import Reporter

LOG = logging.getLogger("fedscope")


def reporter(*, progress: bool) -> Reporter:
    """Return what workflows report to; with ``progress`` it shows a bar for each long step."""
    return Reporter(_bar, _bar, LOG.warning) if progress else Reporter(note=LOG.warning)


@contextmanager
def _bar(title: str) -> Iterator[Steps]:
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
        TimeElapsedColumn(), TextColumn("{task.fields[text]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, text="")

        def report(done: int, total: int | None = None, text: str = "", /) -> None:
            end = None if isinstance(total, AtMost) else total
            bar.update(task, completed=done, total=end, text=text)

        yield report
