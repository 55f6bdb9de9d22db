"""The session of a study: where it reports, what it finds again and keeps, and who shares its products."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.federated.parallel import workers
from fedscope.validation import Plain
from fedscope.workflows.progress import SILENT, Reporter, Stage
from fedscope.workflows.results.result_cache import ResultCache

Result = TypeVar("Result", bound=Plain)


@dataclass(frozen=True)
class Session:
    """What the measurements of one command have in common, beside their question."""

    reporter: Reporter = SILENT
    keep: Path | None = None  # folder of results and of an interrupted run's products; None: nothing is kept
    again: bool = False  # do not look there for results
    group: ProcessGroup | None = None  # processes that do the same and share every product's batches

    @classmethod
    def of(cls, registry: Path, reporter: Reporter = SILENT, *, again: bool = False) -> "Session":
        return cls(reporter, RunRegistry(registry).analysis, again)

    @property
    def stage(self) -> Stage:
        """``stage(title)`` wraps each long step and yields its progress callback."""
        return self.reporter.stage

    @cached_property
    def cache(self) -> ResultCache:
        """Products and results; of those that several processes share nothing is kept."""
        return ResultCache(self.keep if self.group is None else None)

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that reports, prints and writes."""
        return self.group is None or self.group.rank() == 0

    def kept(
        self, name: str, kind: type[Result], make: Callable[[], Result], **found_again: object
    ) -> Result:
        """Return the result ``name`` with the fields ``found_again``, or make it and keep it."""
        found = None if self.again else self.cache.result(name)
        if isinstance(found, kind):
            return found.edited(**found_again)
        made = make()
        self.cache.finish(name, made)
        return made


ALONE = Session()
"""Nothing is reported, found again or kept."""


@contextmanager
def shared(session: Session) -> Iterator[Session]:
    """Yield the session of this one of the processes that torchrun started; all but the first are silent."""
    if not workers.under_torchrun():
        yield session
        return
    with workers.joined():
        own = replace(session, group=dist.group.WORLD)
        yield own if own.is_first else replace(own, reporter=SILENT)
