"""The surfaces that a landscape figure shows: those of ``fedscope.landscape``, or of a record."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

# ruff: noqa: D102 (the properties are the fields of fedscope.landscape's results)


class Axis(Protocol):
    """One direction of a surface: its name and the coordinates (m,) along it."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> Tensor: ...


class Mark(Protocol):
    """A known network: its label, a coordinate per axis, and its distance from the slice."""

    @property
    def label(self) -> str: ...
    @property
    def at(self) -> tuple[float, ...]: ...
    @property
    def distance(self) -> float: ...


class Surface(Protocol):
    """Metrics on the grid of a line or a plane, as :class:`fedscope.landscape.Surface` has them."""

    @property
    def axes(self) -> tuple[Axis, ...]: ...
    @property
    def loss(self) -> Tensor: ...
    @property
    def directions(self) -> str: ...
    @property
    def center_loss(self) -> float: ...
    @property
    def stderr(self) -> Tensor | None: ...
    @property
    def metrics_stderr(self) -> Mapping[str, Tensor]: ...
    @property
    def center_metrics(self) -> Mapping[str, float]: ...
    @property
    def metrics(self) -> Mapping[str, Tensor]: ...
    @property
    def marks(self) -> tuple[Mark, ...]: ...
    @property
    def path(self) -> bool: ...
    @property
    def computed(self) -> Tensor | None: ...
    @property
    def interpolation_error(self) -> float | None: ...


@dataclass(frozen=True)
class RecordedAxis:
    """An :class:`Axis` of a record."""

    name: str
    values: Tensor


@dataclass(frozen=True)
class RecordedSurface:
    """A :class:`Surface` of a record, with the fields that are drawn."""

    axes: tuple[RecordedAxis, ...]
    loss: Tensor
    directions: str
    center_loss: float
    stderr: Tensor | None = None
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
    metrics_stderr: Mapping[str, Tensor] = field(default_factory=dict)
    center_metrics: Mapping[str, float] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    path: bool = False
    computed: Tensor | None = None
    interpolation_error: float | None = None
