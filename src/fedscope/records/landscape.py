"""The loss on a slice: the record of ``fedscope plot-landscape --json``, ``fedscope/landscape/1``."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedscope.records.hessian import Checkpoint, Problem
from fedscope.records.numbers import Count, Finite, Grid, Many, Number, Several, fits
from fedscope.validation import Plain

LANDSCAPE_SCHEMA = "fedscope/landscape/1"


class Axis(Plain):
    """One direction of a slice, and the coordinates along it."""

    name: str
    values: Annotated[tuple[Finite, ...], Field(strict=False, min_length=1)]


class Mark(Plain):
    """A known network, at its orthogonal projection on the slice."""

    label: str
    at: Many[Finite]  # a coordinate per axis
    distance: Finite  # from the slice, in units of the weights


class Barrier(Plain):
    """The highest point of the loss above the straight line between two networks' losses."""

    height: Number
    at: Number


class StepCurvature(Plain):
    """Second differences of the surface about its centre, an axis each."""

    values: Many[Number]
    steps: Many[Number]


class Surface(Plain):
    """The loss and other metrics on the grid of a line or a plane; NaN where they are not finite."""

    schema_name: Literal["fedscope/landscape/1"] = Field(alias="schema")
    axes: Annotated[tuple[Axis, ...], Field(strict=False, min_length=1, max_length=2)]
    loss: Grid
    directions: str
    center_loss: Number
    non_finite: Count = 0
    stderr: Grid | None = None  # of the loss, over samples; None: not asked for
    metrics: dict[str, Grid] = Field(default_factory=dict)
    computed: Grid | None = None  # which points were evaluated; None: all
    interpolation_error: float | None = None  # of the others, relative; None: there are none
    marks: Several[Mark] = ()
    path: bool = False  # the marks are a trajectory, in order
    part: str | None = None  # of an objective

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        shape = tuple(len(axis.values) for axis in self.axes)
        grids = {"loss": self.loss, "stderr": self.stderr, "computed": self.computed, **self.metrics}
        for name, grid in grids.items():
            if grid is not None and not fits(grid, shape):
                raise ValueError(f"{name} is no grid of {' × '.join(map(str, shape))} numbers")
        if any(len(mark.at) != len(shape) for mark in self.marks):
            raise ValueError("a mark has not a coordinate per axis")
        return self


class LandscapeRecord(Surface):
    """The loss around a checkpoint, or through several."""

    checkpoint: Checkpoint  # at the centre
    problem: Problem
    curvature: Several[Number] = ()  # the eigenvalues along the axes, where these are eigenvectors
    surface_curvature: Several[Number] = ()  # along the axes, at the centre
    step_curvature: StepCurvature | None = None
    barrier: Barrier | None = None
    networks: Several[Checkpoint] = ()
    directions_of: Checkpoint | None = None  # where the directions were found, if elsewhere
    versions: dict[str, str] = Field(default_factory=dict)


class ObjectiveRecord(Plain):
    """The surfaces of an objective's parts around a checkpoint, all on one plane; it has no schema's name."""

    checkpoint: Checkpoint
    problem: Problem
    parts: Many[Surface]
    versions: dict[str, str] = Field(default_factory=dict)
