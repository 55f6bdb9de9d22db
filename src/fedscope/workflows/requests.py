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
from fedscope.errors import UserError
from fedscope.workflows.option_fields import USED, Bounds, Need, check_fields, option

Engine = Literal["fedscope", "pyhessian", "power"]
LISTED = 10  # samples of the largest influence on λ_max, unless another number is asked for


_WHAT, _WELL, _BETWEEN = "What is measured", "How precisely", "Between clients (H_N, H_D)"
_PUBLISHED = "As the published code computes"
_COMPARED = (Need(lambda request: request.clients, "without --clients"),)
_UNTIL = (*_COMPARED, Need(lambda request: not request.cross_client.probes, "with --client-probes"))
_AS_CODE = (Need(lambda request: request.reading == "code", "without --reading code"),)
_OF_TRACE = (Need(lambda request: not request.only, "with --only lambda_max"),)
_POSITIVE = Bounds(above=0)


@dataclass(frozen=True)
class CrossClientRequest:
    """How clients are compared; what is None is set by the reading."""

    weights: Weights | None = option(
        None, "At each client's weights, or at the global model's. [default: client]",
        _BETWEEN, "client-weights", needs=_COMPARED,
    )  # fmt: skip
    data: Holding | None = option(
        None, "On each client's own training rows, or on the same for all. [default: own; code: global]",
        _BETWEEN, "client-data", needs=_COMPARED,
    )  # fmt: skip
    pairs: Pairs | None = option(
        None, "Pairs averaged over. [default: distinct; code: all_including_self]", _BETWEEN, needs=_COMPARED
    )
    rtol: float = option(
        CLIENT_RTOL, "Half-width of the 95 % intervals of H_N and H_D, relative to their values.",
        _BETWEEN, "client-rtol", bounds=_POSITIVE, needs=_UNTIL,
    )  # fmt: skip
    max_probes: int = option(
        128, "Probes per client at which --client-rtol gives up.",
        _BETWEEN, "client-max-probes", bounds=Bounds(least=16), needs=_UNTIL,
    )  # fmt: skip
    probes: int | None = option(
        None, "Fixed number of probes per client, instead of --client-rtol; half as many products more find "
        "what they need not estimate.",
        _BETWEEN, "client-probes", bounds=Bounds(least=3), needs=_COMPARED,
    )  # fmt: skip
    aim: Reading = option(
        "parameter", "The diagonals whose intervals --client-rtol is about.",
        _BETWEEN, "client-diagonal", needs=_UNTIL,
    )  # fmt: skip
    overlap: int | None = option(
        None, "With --clients: overlap of each client's top K eigenvectors with the global model's.",
        _BETWEEN, metavar="K", bounds=Bounds(least=1), needs=_COMPARED,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_fields(self)

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

    batches: int | None = option(
        10, "--reading code: batches of one product.", _PUBLISHED, "product-batches", metavar="N|all",
        needs=_AS_CODE,
    )  # fmt: skip
    batch_size: int | None = None  # None: the run's
    samples: int | None = None  # that the loader goes through; None: all
    augment: bool = option(True, "--reading code.", _PUBLISHED, needs=_AS_CODE)
    resample: bool = option(  # False: every product sees the batches of the first
        True, "--reading code: other batches in every product.", _PUBLISHED, needs=_AS_CODE
    )
    seed: int = 1  # of the loader, and of the vectors


@dataclass(frozen=True)
class Request:
    """What to measure, and how well."""

    top_k: int = option(1, "Largest eigenvalues.", USED, bounds=Bounds(least=1))
    clients: bool = option(False, "Also compare the curvature of the run's clients: H_N, H_D.", USED)
    density: bool = option(False, "Also estimate the eigenvalue density.", USED)
    influence: int | None = option(
        None, "Also which samples make λ_max: the shares of classes and clients, and the K largest of single "
        f"samples, {LISTED} if K is left out.",
        _WHAT, metavar="K", bounds=Bounds(least=1),
    )  # fmt: skip
    both_ends: bool = option(False, "Also the --top-k smallest eigenvalues.", _WHAT)
    layers: bool = option(False, "Also λ_max of each layer's own diagonal block.", _WHAT)
    blocks: bool = option(False, "Also λ_max of each block of a stack, such as a transformer's.", _WHAT)
    preconditioned: bool = option(
        False, "Also λ_max of P⁻¹H, with P = diag(√s + ε) of a FedAdam, FedYogi or FedAdagrad server, and "
        "the largest that its steps are stable at.", _WHAT,
    )  # fmt: skip
    parameters: tuple[str, ...] = option(
        (), "Only the block of parameters with such names, such as 'layer3.*'; may be repeated. "
        "[default: all]", _WHAT, metavar="PATTERN",
    )  # fmt: skip
    operator: OperatorName = option(
        "hessian", "Hessian, generalised Gauss–Newton, empirical Fisher, or the Fisher of labels that the "
        "model draws.", _WHAT,
    )  # fmt: skip
    engine: Engine = option(
        "fedscope", "Our own estimators, PyHessian's, or deflated power iteration of 20 products, as in "
        "hessian-eigenthings; the eigenvalues of the last two have no error bars.", _WHAT,
    )  # fmt: skip
    reading: ReadingName = option(
        "paper", "As the FedAlign paper defines the metrics, or as its scripts compute them.", _WHAT
    )
    only: Literal["lambda_max"] | None = option(None, "Without the trace and its products.", _WHAT)
    tol: float = option(
        1e-3, "Residual of each eigenpair, relative to λ_max; of several, at most 0.5 % of its own.",
        _WELL, bounds=Bounds(above=0, most=1),
        needs=(Need(lambda r: r.engine != "power", "with --engine power, which takes 20 products"),),
    )  # fmt: skip
    probes: int | None = option(
        None, "Fixed number of trace probes, instead of --trace-rtol.", _WELL, bounds=Bounds(least=2),
        needs=_OF_TRACE,
    )  # fmt: skip
    trace_rtol: float = option(
        0.05, "Standard error of the trace, relative to its value.", _WELL, bounds=_POSITIVE,
        needs=(
            *_OF_TRACE,
            Need(lambda r: not r.probes, "with --probes"),
            Need(lambda r: r.estimates_trace, "with --engine pyhessian or --reading code"),
        ),
    )  # fmt: skip
    products: ProductsName = option(
        "exact", "Hessian–vector products by double backward, or by differences of gradients, for networks "
        "without a second derivative; their error is in residual and interval.", _WELL,
    )  # fmt: skip
    cross_client: CrossClientRequest = field(default_factory=CrossClientRequest)
    resampling: Resampling = field(default_factory=Resampling)  # of reading code
    warm: bool = False  # eigenvalues may begin at the eigenvectors of the round before, and are not certified
    as_kept: bool = False  # a kept result with fewer eigenvalues will do
    bn: BatchNormMode = "eval"
    versions: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)

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
    parts = request.both_ends or request.layers or request.blocks or request.preconditioned or request.only
    if (parts or request.influence or parallel) and not request.certified:
        other = "reading code" if request.reading == "code" else f"engine {request.engine}"
        raise UserError(
            "--both-ends, --layers, --blocks, --influence, --preconditioned, --only and torchrun are for "
            f"fedscope's own estimators; drop --{other}"
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
