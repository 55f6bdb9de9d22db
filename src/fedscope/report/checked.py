"""Saved records that somebody hands in, checked before anything is drawn from them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedscope.errors import UserError
from fedscope.validation import refusal

Number = Annotated[float, Field(allow_inf_nan=False)] | None
Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class _Loose(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Checkpoint(_Loose):
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")]
    path: str = ""
    run: str | None = None
    round: Count | None = None
    client: Count | None = None
    average: str | None = None


class _Problem(_Loose):
    samples: Count
    method: str | None = None
    operator: str = "hessian"


class _Value(_Loose):
    value: Number


class _Top(_Value):
    residual: Number
    stderr_data: Number
    batches: list[Number] | None = None


class _Trace(_Value):
    stderr_probe: Number
    stderr_data: Number
    samples: list[Number] = []
    batches: list[Number] = []


class _Estimate(_Value):
    stderr: Number
    dof: Number = None
    resolved: bool | None = None


class _Mass(_Estimate):
    below: Number = None  # unknown: of an older record, below zero, which the nodes' signs do not tell
    interval: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None


class _Density(_Loose):
    grid: list[Number]
    density: list[Number]
    band: Annotated[list[list[Number]], Field(min_length=2, max_length=2)] | None = None
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    negative_mass: _Mass

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        ends = [self.density, *(self.band or ())]
        if len(self.grid) < 3 or any(len(end) != len(self.grid) for end in ends):
            raise ValueError("the density does not fit its grid")
        return self


class _Both(_Loose):
    tensor: _Estimate | None
    parameter: _Estimate | None


class _Cross(_Loose):
    clients: Count
    pairs: Literal["distinct", "all_including_self"]
    H_N: _Both
    H_D: _Both
    numbers: list[Count] | None = None
    rounds: list[Count | None] | None = None
    traces: list[_Estimate] | None = None
    lambda_max: list[_Top] | None = None
    overlap: list[Number] | None = None
    matrices: dict[str, dict[str, list[list[Number]] | None]] | None = None
    matrices_resolved: dict[str, dict[str, list[list[bool]] | None]] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for name in ("numbers", "rounds", "traces", "lambda_max", "overlap"):
            values = getattr(self, name)
            if values and len(values) != self.clients:
                raise ValueError(f"{name} are not of {self.clients} clients")
        return self


class _Hessian(_Loose):
    schema_: Literal["fedscope/hessian/1"] = Field(alias="schema")
    checkpoint: _Checkpoint
    problem: _Problem
    batch_sizes: list[Count]
    lambda_max: _Top
    eigenvalues: list[_Top]
    trace: _Trace
    density: _Density | None
    cross_client: _Cross | None
    versions: dict[str, str] = {}


class _Axis(_Loose):
    name: str
    values: Annotated[list[Finite], Field(min_length=1)]


class _Mark(_Loose):
    label: str
    at: list[Finite]
    distance: Finite


class _Barrier(_Loose):
    height: Number
    at: Number


Grid = list[Any]


class _Landscape(_Loose):
    schema_: Literal["fedscope/landscape/1"] = Field(alias="schema")
    checkpoint: _Checkpoint
    problem: _Problem
    axes: Annotated[list[_Axis], Field(min_length=1, max_length=2)]
    loss: Grid
    directions: str
    center_loss: Number
    non_finite: Count
    curvature: list[Number] | None = None
    surface_curvature: list[Number] | None = None
    stderr: Grid | None = None
    metrics: dict[str, Grid] = {}
    computed: Grid | None = None
    interpolation_error: Number = None
    marks: list[_Mark] = []
    path: bool = False
    barrier: _Barrier | None = None
    networks: list[_Checkpoint] = []
    directions_of: _Checkpoint | None = None
    versions: dict[str, str] = {}

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        shape = [len(axis.values) for axis in self.axes]
        for name, grid in {
            "loss": self.loss,
            "stderr": self.stderr,
            "computed": self.computed,
            **self.metrics,
        }.items():
            if grid is not None and not _fits(grid, shape):
                raise ValueError(f"{name} is no grid of {' × '.join(map(str, shape))} numbers")
        if any(len(mark.at) != len(shape) for mark in self.marks):
            raise ValueError("a mark has not a coordinate per axis")
        return self


_RECORD: TypeAdapter[Any] = TypeAdapter(Annotated[_Hessian | _Landscape, Field(discriminator="schema_")])


def checked(content: Any, what: str) -> list[dict[str, Any]]:
    """Return the record, or the records, in ``content`` as they are.

    Raises:
        UserError: something in it is no record of schema fedscope/hessian/1 or fedscope/landscape/1;
            ``what`` names its origin.
    """
    records = content if isinstance(content, list) else [content]
    for record in records:
        try:
            _RECORD.validate_python(record)
        except ValidationError as error:
            raise UserError(
                f"{what} is no record of 'fedscope hessian --json' or 'plot-landscape --json': "
                + refusal(error, _RECORD.json_schema())
            ) from error
    return records


def _fits(grid: Any, shape: Sequence[int]) -> bool:
    if not isinstance(grid, list) or len(grid) != shape[0]:
        return False
    if len(shape) > 1:
        return all(_fits(part, shape[1:]) for part in grid)
    return all(value is None or isinstance(value, int | float) for value in grid)
