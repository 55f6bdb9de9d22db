"""Results on a slice of weight space: frozen records of axes, known networks and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedscope.landscape.loss.forms import PLAIN, Form
from fedscope.landscape.printing import Printed


@dataclass(frozen=True, repr=False)
class Axis(Printed):
    """One direction of a surface: its name and the coordinates along it."""

    name: str
    values: Tensor  # (m,) float64


@dataclass(frozen=True, repr=False)
class Mark(Printed):
    """A known network, where a slice of weight space shows it: at its orthogonal projection."""

    label: str
    at: tuple[float, ...]  # a coordinate per axis
    distance: float  # ‖w − projection‖, in units of the weights: 0 for a network the slice passes through


@dataclass(frozen=True, repr=False)
class Surface(Printed):
    """Metrics on a grid of a line or a plane, o + a·d₀ (+ b·d₁); non-finite points are kept as they are.

    Grid tensors are (m₀,) on a line and (m₀, m₁) on a plane, float64, first index along ``axes[0]``.
    """

    axes: tuple[Axis, ...]  # one or two
    loss: Tensor  # grid
    directions: str
    center_loss: float  # at o
    non_finite: int
    stderr: Tensor | None = None  # grid: of the loss, from the spread over samples; None: not asked for
    metrics: Mapping[str, Tensor] = field(default_factory=dict)  # name → grid; "accuracy" is in [0, 1]
    metrics_stderr: Mapping[str, Tensor] = field(default_factory=dict)  # the same; NaN where unknown
    center_metrics: Mapping[str, float] = field(default_factory=dict)  # at o
    marks: tuple[Mark, ...] = ()
    path: bool = False  # the marks are a trajectory, in order
    computed: Tensor | None = None  # grid, bool: which points were evaluated; None: all
    interpolation_error: float | None = None  # of the others' loss, relative: the largest at held-out points
    statistics: str = "kept"  # what BatchNorm's running statistics do from point to point
    precision: str = "fp32"
    form: Form = PLAIN  # how the network was evaluated
    precision_error: float | None = None  # largest relative error of the loss by bf16, at points of the grid


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
