"""The processes that torchrun started, which share every product's batches."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.federated.parallel import workers
from fedscope.workflows.progress import SILENT, Reporter


@contextmanager
def joined_group() -> Iterator[ProcessGroup | None]:
    if not workers.under_torchrun():
        yield None
        return
    with workers.joined():
        yield dist.group.WORLD


def is_first(group: ProcessGroup | None) -> bool:
    """Say whether this process is the one that reports, prints and writes."""
    return group is None or group.rank() == 0


def reporter_of(reporter: Reporter, group: ProcessGroup | None) -> Reporter:
    """Return the reporter of this process, which is silent on all but the first."""
    return reporter if is_first(group) else SILENT
