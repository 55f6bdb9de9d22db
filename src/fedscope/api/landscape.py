"""The loss around checkpoints or networks, or through them."""

from collections.abc import Sequence
from math import isfinite
from typing import Unpack

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.printed_results import Recorded, axes_of, on_screen
from fedscope.api.reporting import reporter
from fedscope.api.sources import On, Weights, found, names_of, targets_of
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import BatchNormMode, DirectionsName, Precision
from fedscope.errors import UserError, check_keywords
from fedscope.figures import own_axes
from fedscope.figures.digits import format_estimate
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.figures.style import paper_style
from fedscope.figures.surface.landscape_figures import draw
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import label
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.workflows.landscape.landscape_command import landscapes
from fedscope.workflows.landscape.landscape_request import THROUGH, Plane
from fedscope.workflows.landscape.scan import scan
from fedscope.workflows.study import Session


class Landscape(Recorded[LandscapeRecord]):
    """Planes, or lines, of the loss; :attr:`records` has them as ``plot-landscape --json`` prints them."""

    def __getitem__(self, place: int) -> "Landscape":
        return Landscape([self.records[place]])

    def table(self) -> Table:
        """Return of each one its centre's loss, the range on the grid, and the axes."""
        rows = [
            (
                label(record.checkpoint), format_estimate(record.center_loss), *_range(record),
                " × ".join(f"{axis.name} ({len(axis.values)})" for axis in record.axes),
            )
            for record in self.records
        ]  # fmt: skip
        return Table(
            "Loss landscape", ("checkpoint", "centre", "lowest", "highest", "axes (points)"), tuple(rows), ()
        )

    def figure(self, kind: SurfaceKind = "both", *, metric: str = "loss") -> Figure:
        """Return the picture: surfaces above contours (``both``), one of them, or a ``heat`` map."""
        return on_screen(draw(self.records, kind=kind, metric=metric))

    def plot(
        self, ax: Axes | None = None, *, kind: SurfaceKind = "contour", metric: str = "loss", place: int = 0
    ) -> Axes:
        """Draw one plane as a ``contour``, ``heat`` or ``surface`` plot, a line as a curve; return the axes.

        Raises:
            UserError: the axes do not suit the kind, or there is nothing to draw.
        """
        record = self.records[place]
        surface = kind == "surface" and len(record.axes) == 2
        axes = axes_of(ax, height=2.8, space=surface)
        with paper_style():
            own_axes.plane(axes, record, kind=kind, metric=metric)
        return axes


def landscape(
    *what: Weights,
    directions: DirectionsName = "eigen",
    grid: int | tuple[int, ...] = 41,
    span: float = 1.0,
    metrics: Sequence[str] = (),
    adaptive: float | None = None,
    precision: Precision = "fp32",
    bn: BatchNormMode = "eval",
    rounds: str | None = None,
    recompute: bool = False,
    **on: Unpack[On],
) -> Landscape:
    """Compute the loss on a plane or line around each checkpoint or network, or through several checkpoints.

    Args:
        *what: as for :func:`measure`; none: the registry's newest run.
        directions: ``eigen``, ``ggn`` or ``random``, around each; of checkpoints also ``line`` through two,
            ``points`` through three, ``pca`` of a trajectory, ``clients`` around the global model.
        grid: points along the axes, or along each.
        span: the axes run from −span to span; through several, span times as far as these reach.
        metrics: beside the loss: ``accuracy``, or MODULE:FUNCTION.
        adaptive: evaluate only the points that it takes to interpolate the others to this relative error.
        precision: of the network's arithmetic, ``fp32`` or ``bf16``.
        bn: BatchNorm's statistics, see :func:`measure`.
        rounds: FIRST:LAST:STEP or ``all``: these rounds of the runs, along the last one's directions.
        recompute: evaluate again what the registry has.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: a checkpoint, data or option is wrong; the message says how to mend it.
    """
    check_keywords(landscape, on, On)
    plane = Plane(
        directions=directions, grid=grid, span=span, bn=bn, metrics=tuple(metrics), adaptive=adaptive,
        precision=precision, versions=versions(),
    )  # fmt: skip
    report = reporter(progress=on.get("progress", False))
    named = names_of(what, on)
    if named is not None:
        return Landscape(
            landscapes(targets_of(*named, on, bn), plane, report, rounds=rounds, again=recompute)
        )
    if directions in THROUGH or rounds:
        raise UserError("lines and planes through several networks take checkpoints; save the networks first")
    sources = found(what, on, bn)
    return Landscape([scan(one, plane, Session(report, again=recompute)) for one in sources.problems])


def _range(record: LandscapeRecord) -> tuple[str, str]:
    values = [value for row in record.loss for value in (row if isinstance(row, tuple) else (row,))]
    finite = [value for value in values if isfinite(value)]
    return (format_estimate(min(finite)), format_estimate(max(finite))) if finite else ("–", "–")
