"""The loss on a slice: the record of ``fedscope plot-landscape --json``, ``fedscope/landscape/1``."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedscope.records.hessian_record import CheckpointEntry, ProblemEntry
from fedscope.records.number_types import Count, Finite, Grid, Many, Number, Several, fits
from fedscope.validation import Plain

LANDSCAPE_SCHEMA = "fedscope/landscape/1"


class AxisEntry(Plain):
    """One direction of a slice, and the coordinates along it."""

    name: str  # what the direction is
    # coordinates of the grid, ascending [norms of the direction]
    values: Annotated[tuple[Finite, ...], Field(strict=False, min_length=1)]


class MarkEntry(Plain):
    """A known network, at its orthogonal projection on the slice."""

    label: str  # as pictures show it
    at: Many[Finite]  # a coordinate per axis
    distance: Finite  # from the slice [weights]


class BarrierEntry(Plain):
    """The highest point of the loss above the straight line between two networks' losses."""

    height: Number  # above the straight line; 0 where the loss is nowhere above it [loss]
    at: Number  # coordinate of the highest point


class StepCurvature(Plain):
    """Second differences of the surface about its centre, an axis each."""

    values: Many[Number]  # NaN where the grid does not hold the three points [loss/w²]
    steps: Many[Number]  # half the width of each difference


class SurfaceEntry(Plain):
    """The loss and other metrics on the grid of a line or a plane; NaN where they are not finite."""

    schema_name: Literal["fedscope/landscape/1"] = Field(alias="schema")  # name and version of this format
    # one of a line, two of a plane
    axes: Annotated[tuple[AxisEntry, ...], Field(strict=False, min_length=1, max_length=2)]
    loss: Grid  # mean over the samples, at every point [loss]
    directions: str  # what ``--directions`` was
    center_loss: Number  # at the origin [loss]
    non_finite: Count = 0  # points and other numbers that are null because they were not finite
    stderr: Grid | None = None  # of the loss, over samples; None: not asked for [loss]
    metrics: dict[str, Grid] = Field(default_factory=dict)  # further grids by name (``--metric``)
    metrics_stderr: dict[str, Grid] = Field(default_factory=dict)  # their standard errors over samples
    center_metrics: dict[str, Number] = Field(default_factory=dict)  # their values at the origin
    computed: Grid | None = None  # which points were evaluated; None: all
    points: Count | None = None  # how many were evaluated; None: not stated
    interpolation_error: float | None = None  # of the others, relative; None: there are none
    statistics: str | None = None  # of BatchNorm: how they were had at each point; None: not stated
    precision: str | None = None  # ``fp32``, ``bf16`` or ``fp64``; None: not stated
    # largest relative difference to float32 that was seen; None: not looked for
    precision_error: float | None = None
    marks: Several[MarkEntry] = ()  # known networks
    path: bool = False  # the marks are a trajectory, in order
    part: str | None = None  # of an objective: its name

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        shape = tuple(len(axis.values) for axis in self.axes)
        grids = [("loss", self.loss), ("stderr", self.stderr), ("computed", self.computed)]
        grids += [*self.metrics.items(), *self.metrics_stderr.items()]
        for name, grid in grids:
            if grid is not None and not fits(grid, shape):
                raise ValueError(f"{name} is no grid of {' × '.join(map(str, shape))} numbers")
        if any(len(mark.at) != len(shape) for mark in self.marks):
            raise ValueError("a mark has not a coordinate per axis")
        return self


class LandscapeRecord(SurfaceEntry):
    """The loss around a checkpoint, or through several."""

    checkpoint: CheckpointEntry  # at the centre
    problem: ProblemEntry  # on which samples, of which network
    curvature: Several[Number] = ()  # the eigenvalues along the axes, where these are eigenvectors [loss/w²]
    surface_curvature: Several[Number] = ()  # second derivative along each axis, at the centre [loss/w²]
    # second difference along each axis, over one step of the grid
    step_curvature: StepCurvature | None = None
    barrier: BarrierEntry | None = None  # of a line between two networks
    networks: Several[CheckpointEntry] = ()  # all that the slice was laid through
    directions_of: CheckpointEntry | None = None  # where the directions were found, if elsewhere
    converged: bool | None = None  # whether the eigenvectors reached their precision; None: there are none
    seconds: Number = math.nan  # wall time; NaN: not stated [s]
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed


class ObjectiveRecord(Plain):
    """The surfaces of an objective's parts around a checkpoint, all on one plane; it has no schema's name."""

    checkpoint: CheckpointEntry  # at the centre
    problem: ProblemEntry  # on which samples, of which network
    parts: Many[SurfaceEntry]  # a surface for each part, and for the sum
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed
