"""One run's landscape at several rounds, so that they can be seen one after the other.

All frames lie along the same directions, found at the last of the rounds, and each is centred at its own
round's weights: the film shows how the curvature around the network changes along the directions that are the
sharpest in the end. A plane along each round's own eigenvectors would turn from frame to frame, and a plane
fixed in weight space would soon not contain the network.
"""

from collections.abc import Sequence
from pathlib import Path

from torch.distributed import ProcessGroup

from fedscope.records.landscape import LandscapeRecord
from fedscope.workflows.landscape.named_slices import Plane, slice_through
from fedscope.workflows.landscape.scan import SharedSlice, scan
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.cache import ResultCache
from fedscope.workflows.sources.problem import Problem


def scan_rounds(
    problems: Sequence[Problem],
    plane: Plane,
    stage: Stage,
    *,
    keep: Path | None = None,
    again: bool = False,
    group: ProcessGroup | None = None,
) -> list[LandscapeRecord]:
    """Return a record of schema ``fedscope/landscape/1`` per round, in the rounds' order.

    ``directions_of`` names the checkpoint whose directions all share; only the record of that checkpoint has
    the eigenvalues along them.
    """
    last = problems[-1]
    cache = ResultCache(keep if group is None else None)
    shared = SharedSlice(slice_through(last, plane, stage, cache=cache, group=group), last)
    frames = [
        scan(problem, plane, stage, shared=shared, keep=keep, again=again, group=group)
        for problem in problems
    ]
    cache.delete_products()
    return frames
