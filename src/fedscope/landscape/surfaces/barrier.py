"""The barrier between two networks: how far the loss rises on the straight line from one to the other."""

from dataclasses import dataclass

from fedscope.landscape.printing import Printed
from fedscope.landscape.surfaces.surface_results import Surface


@dataclass(frozen=True, repr=False)
class Barrier(Printed):
    """The largest excess of the loss over the straight line between the two ends' losses."""

    height: float  # 0 where the loss nowhere exceeds that line
    at: float  # the coordinate where it is


def barrier(line: Surface) -> Barrier | None:
    """Return the barrier on a line between its two marks (Entezari et al. 2022, section 2).

    Returns:
        None for a surface that is no line between two marks which are points of it.
    """
    if len(line.axes) != 1 or len(line.marks) != 2:
        return None
    values = line.axes[0].values
    start, end = sorted(mark.at[0] for mark in line.marks)
    first, last = (int((values - mark).abs().argmin()) for mark in (start, end))
    if first == last or [float(values[first]), float(values[last])] != [start, end]:
        return None
    along, loss = values[first : last + 1], line.loss[first : last + 1]
    share = (along - start) / (end - start)
    excess = loss - ((1 - share) * loss[0] + share * loss[-1])
    highest = int(excess.argmax())
    return Barrier(float(excess[highest]), float(along[highest]))
