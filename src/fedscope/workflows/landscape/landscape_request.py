"""Which landscape is drawn; plain data, so that asking for it needs no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedscope.choices import BatchNormMode, DirectionsName, Precision
from fedscope.workflows.option_fields import USED, Bounds, check_fields, option

THROUGH: tuple[DirectionsName, ...] = ("pca", "points", "line", "clients")  # several networks
_HOW = "How points are evaluated"


@dataclass(frozen=True)
class Plane:
    """Which line or plane of weight space, and the grid on it."""

    directions: DirectionsName = option(
        "eigen", "Top two eigenvectors of the Hessian or of the Gauss-Newton matrix, or random "
        "filter-normalised; or through networks: a trajectory, 3 points, the line between 2, a round's "
        "clients.", USED,
    )  # fmt: skip
    grid: int | tuple[int, ...] = 41  # points along the axes, or along each
    span: float = option(
        1.0, "The axes run from -SPAN to SPAN; through networks, SPAN times as far as these reach.", USED,
        bounds=Bounds(above=0),
    )  # fmt: skip
    tol: float = 1e-2  # residual of the eigenvectors, relative to λ_max
    bn: BatchNormMode = "eval"
    metrics: tuple[str, ...] = ()  # beside the loss: accuracy, MODULE:FUNCTION
    adaptive: float | None = option(
        None, "Evaluate only the points that it takes to interpolate the others to this relative error, such "
        "as 0.01. [default: all]", _HOW, metavar="TOL", bounds=Bounds(above=0, below=1),
    )  # fmt: skip
    precision: Precision = option(
        "fp32", "Of the network's arithmetic; the record has the error of bf16.", _HOW
    )
    versions: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
