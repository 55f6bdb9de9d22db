"""What to measure of a checkpoint, and how well; plain data, so that asking for it needs no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from fedscope.choices import (
    CLIENT_RTOL,
    BatchNormMode,
    Holding,
    OperatorName,
    Pairs,
    ProductsName,
    Reading,
    ReadingName,
    Weights,
)
from fedscope.errors import UserError, check_choices

Engine = Literal["fedscope", "pyhessian", "power"]
LISTED = 10  # samples of the largest influence on λ_max, unless another number is asked for


@dataclass(frozen=True)
class CrossClientRequest:
    """How clients are compared; what is None is set by the reading."""

    weights: Weights | None = None
    data: Holding | None = None
    pairs: Pairs | None = None
    probes: int | None = None  # per client; None: until rtol
    rtol: float = CLIENT_RTOL  # half-widths of the intervals of H_N and H_D, relative to the values
    max_probes: int = 128
    aim: Reading = "parameter"  # the diagonals whose intervals rtol is about
    overlap: int | None = None  # leading eigenvectors to compare with the global model's

    def __post_init__(self) -> None:
        check_choices(CrossClientRequest, **vars(self))

    def settled(self, reading: ReadingName) -> "CrossClientRequest":
        return replace(
            self,
            weights=self.weights or "client",
            data=self.data or ("own" if reading == "paper" else "global"),
            pairs=self.pairs or ("distinct" if reading == "paper" else "all_including_self"),
        )


@dataclass(frozen=True)
class Resampling:
    """Which samples a product of reading ``code`` sees."""

    batches: int | None = 10  # of each product; None: all of the loader
    batch_size: int | None = None  # None: the run's
    samples: int | None = None  # that the loader goes through; None: all
    augment: bool = True
    resample: bool = True  # False: every product sees the batches of the first
    seed: int = 1  # of the loader, and of the vectors


@dataclass(frozen=True)
class Request:
    """What to measure, and how well."""

    top_k: int = 1
    both_ends: bool = False  # also the k smallest
    layers: bool = False  # also λ_max of each layer's own block
    blocks: bool = False  # also that of each block of a stack, such as a transformer's
    warm: bool = False  # eigenvalues may begin at the eigenvectors of the round before, and are not certified
    tol: float = 1e-3
    probes: int | None = None  # fixed number of trace probes; None: until trace_rtol
    trace_rtol: float = 0.05
    density: bool = False
    preconditioned: bool = False  # also λ_max of P⁻¹H of an adaptive server
    influence: int | None = None  # how many of the samples that make λ_max are listed; None: nothing of them
    clients: bool = False
    cross_client: CrossClientRequest = field(default_factory=CrossClientRequest)
    reading: ReadingName = "paper"
    resampling: Resampling = field(default_factory=Resampling)  # of reading code
    engine: Engine = "fedscope"
    operator: OperatorName = "hessian"
    products: ProductsName = "exact"
    parameters: tuple[str, ...] = ()  # patterns of names; none: all parameters
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None

    @property
    def eigenpairs(self) -> int:
        return self.top_k * (2 if self.both_ends else 1)

    @property
    def estimates_trace(self) -> bool:
        """Whether the trace is our own estimate, with its errors."""
        return self.engine != "pyhessian" and self.reading == "paper"

    @property
    def certified(self) -> bool:
        """Whether our own estimators measure it, whose errors are known."""
        return self.engine == "fedscope" and self.reading == "paper"


def check_request(request: Request, *, parallel: bool) -> None:
    parts = request.both_ends or request.layers or request.blocks or request.preconditioned
    if (parts or request.influence or parallel) and not request.certified:
        other = "reading code" if request.reading == "code" else f"engine {request.engine}"
        raise UserError(
            "--both-ends, --layers, --blocks, --influence, --preconditioned and torchrun are for fedscope's "
            f"own estimators; drop --{other}"
        )
    if request.engine == "pyhessian":
        if request.density or request.clients or request.top_k > 1 or request.probes:
            raise UserError(
                "--engine pyhessian gives λ_max and the trace by its own stopping rules; drop --density, "
                "--clients, --top-k and --probes"
            )
        if request.operator != "hessian" or request.parameters:
            raise UserError("--engine pyhessian has the whole Hessian only; drop --operator and --parameters")
    if request.engine == "power" and (request.density or request.clients):
        raise UserError(
            "--engine power gives --top-k eigenvalues and the trace; drop --density and --clients, and of "
            "--figure draw --kind eigenvalues or bars"
        )
    if request.engine != "fedscope" and request.reading == "code":
        raise UserError(f"--reading code has its own estimators; drop --engine {request.engine}")
    if request.products != "exact" and (request.operator != "hessian" or not request.certified):
        raise UserError(
            "--products finite-differences is of fedscope's own Hessian; drop --operator, --engine and "
            "--reading, or --products"
        )
    crossing = request.cross_client
    if crossing.overlap and not request.clients:
        raise UserError("--overlap is of the clients with the global model; add --clients")
    if request.reading == "code" and (
        request.density or request.probes or crossing.probes or crossing.overlap
    ):
        raise UserError(
            "the published scripts have no density, no overlap and no fixed number of probes; drop --density,"
            " --figure, --overlap, --probes and --client-probes, or use --reading paper"
        )
