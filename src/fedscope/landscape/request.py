"""What to measure of a checkpoint, and how well."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedscope.errors import UserError
from fedscope.landscape.crossing import Crossing, ReadingName
from fedscope.landscape.normalization import BatchNormMode
from fedscope.landscape.resampled import Resampling

OperatorName = Literal["hessian", "ggn", "fisher"]


@dataclass(frozen=True)
class Request:
    """What to measure, and how well."""

    top_k: int = 1
    both_ends: bool = False  # also the k smallest
    layers: bool = False  # also λ_max of each layer's own block
    tol: float = 1e-3
    probes: int | None = None  # fixed number of trace probes; None: until trace_rtol
    trace_rtol: float = 0.05
    density: bool = False
    clients: bool = False
    crossing: Crossing = field(default_factory=Crossing)
    reading: ReadingName = "paper"
    resampling: Resampling = field(default_factory=Resampling)  # of reading code
    engine: Literal["fedscope", "pyhessian"] = "fedscope"
    operator: OperatorName = "hessian"
    parameters: tuple[str, ...] = ()  # patterns of names; none: all parameters
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None

    @property
    def certified(self) -> bool:
        """Whether our own estimators measure it, whose errors are known."""
        return self.engine == "fedscope" and self.reading == "paper"


def check_request(request: Request, *, parallel: bool) -> None:
    """Refuse what does not go together.

    Raises:
        UserError: it does not; what to drop.
    """
    if not request.certified and (request.both_ends or request.layers or parallel):
        raise UserError(
            "--both-ends, --layers and torchrun are for fedscope's own estimators; drop --engine pyhessian "
            "and --reading code"
        )
    if request.engine == "pyhessian":
        if request.density or request.clients or request.top_k > 1 or request.probes:
            raise UserError(
                "--engine pyhessian gives λ_max and the trace by its own stopping rules; drop --density, "
                "--clients, --top-k and --probes"
            )
        if request.operator != "hessian" or request.parameters:
            raise UserError("--engine pyhessian has the whole Hessian only; drop --operator and --parameters")
        if request.reading == "code":
            raise UserError("--reading code has its own estimators; drop --engine pyhessian")
