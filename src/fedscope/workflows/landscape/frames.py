"""One run's landscape at several rounds, so that they can be seen one after the other.

All frames lie along the same directions, those found at the last of the rounds, and each is centred at its
own round's weights: what moves in the picture is how the loss bends around the network along the directions
that in the end are the sharpest. A plane that moved with every round's own eigenvectors would turn as well,
and one fixed in weight space would soon not contain the network.
"""

from collections.abc import Sequence
from pathlib import Path

from torch.distributed import ProcessGroup

from fedscope.records.landscape import LandscapeRecord
from fedscope.workflows.landscape.scan import Plane, Shared, scan, sliced
from fedscope.workflows.progress import Stage
from fedscope.workflows.results.cache import Keeper
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

    Each names under ``directions_of`` the checkpoint whose directions it shares; only that one's own record
    has their curvature.
    """
    last = problems[-1]
    keeper = Keeper(keep if group is None else None)
    shared = Shared(sliced(last, plane, stage, keeper=keeper, group=group), last.checkpoint)
    frames = [
        scan(problem, plane, stage, shared=shared, keep=keep, again=again, group=group)
        for problem in problems
    ]
    keeper.delete_products()
    return frames
