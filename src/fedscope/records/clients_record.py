"""One round's clients beside each other and the global model: ``fedscope clients --json``.

The schema is ``fedscope/clients/1``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from fedscope.choices import Anchor
from fedscope.pairing import Pairing
from fedscope.records.cross_client_entry import Barriers, Critical, CrossClientEntry, Matrix, Noise
from fedscope.records.estimates import Entry, Errors
from fedscope.records.hessian_record import CheckpointEntry, ProblemEntry
from fedscope.records.number_types import Count, Freedom, Interval, Many, Number, or_null
from fedscope.statistics.resolution import is_resolved
from fedscope.validation import Plain

if TYPE_CHECKING:
    from fedscope.landscape.heterogeneity.one_round.paired import Paired

CLIENTS_SCHEMA = "fedscope/clients/1"
Function = Literal["own", "global"]
Point = Literal["own", "global", "start"]
Quantity = Literal["loss", "lambda_max", "trace"]
QUANTITIES: tuple[Quantity, ...] = ("loss", "lambda_max", "trace")
GAPS = ("discrepancy", "averaging_own", "averaging_global", "function_at_own", "function_at_global")
SYMBOLS: Mapping[Quantity, str] = {"loss": "loss", "lambda_max": "λ_max", "trace": "trace"}


class Amount(Entry):
    """A number on the samples as they are, with its errors."""

    stderr_probe: Number  # standard error over the probes, in the unit of the value; 0 without probes
    stderr_data: Number  # standard error over the samples; 0 where all were taken
    dof: Freedom = math.inf  # degrees of freedom of both together
    bias: Number = 0.0  # how far the value is too high on average on so few samples
    # 95 %, of the value on what the samples were drawn from: both errors, without the bias
    interval: Interval | None = None
    resolved: bool = True  # whether value and interval say anything of a quantity with a range

    @property
    def stated_errors(self) -> Errors:
        """Both errors together."""
        return ((self.stderr, self.dof),)

    @property
    def stderr(self) -> float:
        """The standard error of probes and samples together; NaN where one is not known."""
        return math.hypot(self.stderr_probe, self.stderr_data)


class CellEntry(Plain):
    """One function at one point of weight space."""

    # ``own``: each client's loss on its own rows; ``global``: the loss on the problem's samples
    function: Function
    # ``own``: the client's upload; ``global``: the round's model; ``start``: what it began with
    weights: Point
    clients: Many[Amount]  # of each client; of the global function at the global weights the same for all
    mean: Amount  # Σ p_k over the clients


class GapEntry(Plain):
    """A difference of two cells."""

    name: str  # which: see the table of definitions in the documentation
    clients: Many[Amount]  # of each client
    mean: Amount  # Σ p_k over the clients


class Flatness(Plain):
    """One quantity in all cells, and their differences."""

    quantity: Quantity  # ``loss``, ``lambda_max`` or ``trace``
    cells: Many[CellEntry]  # of each function at each point
    gaps: Many[GapEntry]  # differences of cells

    def cell(self, function: Function, weights: Point) -> CellEntry | None:
        """Return one cell; None where it was not measured."""
        return next((one for one in self.cells if (one.function, one.weights) == (function, weights)), None)

    def gap(self, name: str) -> GapEntry:
        """Return the gap of this name."""
        return next(one for one in self.gaps if one.name == name)


class Aligned(Plain):
    """An update beside one Hessian."""

    rayleigh: Amount  # ΔᵀHΔ/‖Δ‖² [loss/w²]
    share: Amount | None  # ‖P_kΔ‖²/‖Δ‖², in the space of the top k eigenvectors, from 0 to 1


class ClientAlignment(Plain):
    """A client's update."""

    length: Number  # ‖Δ‖ [w]
    own: Aligned  # beside the Hessian of its own loss at the global weights
    overall: Aligned = Field(alias="global")  # beside the Hessian of the global loss there


class AlignmentEntry(Plain):
    """How the clients' updates lie to the curvature at the global model."""

    anchor: Anchor  # what updates are from: the model that the round began with, or its result
    k: Count  # eigenvectors of the space
    random: Number  # the share k/n that a random direction has
    # how many standard errors the k-th eigenvalue lies above the next one, at least, over all spaces; of few
    # the intervals of shares are too narrow
    separation: Number
    clients: Many[ClientAlignment]  # of each client
    own: Aligned  # Σ p_k of the clients' beside their own Hessians
    overall: Aligned = Field(alias="global")  # Σ p_k of the clients' beside the global Hessian


class Terms(Plain):
    """The loss at displaced weights less that at the mean of all, and the terms of its expansion."""

    measured: Amount  # [loss]
    first: Amount  # slope times displacement; of the global loss its mean is 0 [loss]
    second: Amount  # half the displacement's curvature [loss]
    remainder: Amount  # what the two terms leave [loss]


class Drift(Plain):
    """What averaging costs by one function: each client's terms, and their mean Σ p_k."""

    clients: Many[Terms]  # of each client
    mean: Terms  # Σ p_k over the clients


class AveragingEntry(Plain):
    """What averaging costs. Buffers are those of the mean in all terms."""

    overall: Drift = Field(alias="global")  # of the global loss
    own: Drift  # of each client's own loss
    # Σ p_k F(w_k) − F(w̄) with each model's own BatchNorm statistics; None without such layers [loss]
    own_buffers: Amount | None
    # of the mean of the uploads from the round's model, relative to the clients' root mean square distance
    distance: Number


class Overlap(Plain):
    """How much the top eigenspaces of the clients have in common, each at its own weights on its own rows."""

    k: Count  # eigenvectors of each space
    matrix: Matrix  # (K + 1, K + 1): the clients, and last the global one; NaN on the diagonal
    stderr: Matrix  # standard errors over the samples
    low: Matrix  # lower ends of the 95 % intervals
    high: Matrix  # upper ends
    random: Number  # the overlap k/n of random spaces
    separation: Number  # as of the alignment


class Taken(Plain):
    """What one client brought."""

    number: Count  # of the client
    share: Number  # p_k, its weight in the mean of the round
    samples: Count  # of its rows that were measured on [samples]
    population: Count  # rows that it holds [samples]
    sha256: str  # of its upload


class ClientsRecord(Plain):
    """What was measured of the clients of one round."""

    schema_name: Literal["fedscope/clients/1"] = Field(alias="schema")  # name and version of this format
    checkpoint: CheckpointEntry  # the round's global model
    start: CheckpointEntry | None  # the model that the round began with; None: not kept
    problem: ProblemEntry  # network, and the samples of the global loss
    samples_sha256: str  # of the inputs and targets of the global loss
    clients: Many[Taken]  # in the order of all lists below
    rows: str  # ``stored`` or ``redrawn``: where it is known who holds which rows from
    rows_sha256: str  # hash of the rows that the clients hold
    pairing: Pairing | None = None  # whose the models are, and which are equal
    measured: Many[str]  # the parts that were asked for
    top_k: Count  # eigenvectors of the spaces
    tol: Number  # residual of the eigenpairs, relative to λ_max
    probes: Count  # of each trace
    flatness: Many[Flatness]  # loss, λ_max and trace, as asked for
    alignment: AlignmentEntry | None = None  # of the clients' updates; None: not asked for
    averaging: AveragingEntry | None = None  # its cost; None: not asked for
    overlap: Overlap | None = None  # of the clients' eigenspaces; None: not asked for
    cross_client: CrossClientEntry | None = None  # H_N and H_D
    noise: Noise | None = None  # how the clients' gradients scatter; None: not asked for
    critical: Critical | None = None  # how far along the updates the loss falls; None: not asked for
    barriers: Barriers | None = None  # between the clients' models; None: not asked for
    passes: dict[str, int] = Field(default_factory=dict)  # forward passes, and gradients, of other parts
    converged: bool  # whether all eigenpairs reached ``tol``
    products: dict[str, int]  # Hessian–vector products of each part [products]
    seconds: dict[str, float]  # wall time of each part [s]
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed
    reused: bool = False  # whether it was found in the registry, not measured
    non_finite: Count = 0  # numbers that are null because they were not finite

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        count = len(self.clients)
        lists: list[Any] = [cell.clients for one in self.flatness for cell in one.cells]
        lists += [gap.clients for one in self.flatness for gap in one.gaps]
        lists += [self.alignment.clients] if self.alignment else []
        lists += [self.averaging.own.clients, self.averaging.overall.clients] if self.averaging else []
        lists += [self.noise.clients, self.noise.apart] if self.noise else []
        lists += [self.critical.clients] if self.critical else []
        lists += [self.barriers.matrix] if self.barriers else []
        if any(len(one) != count for one in lists):
            raise ValueError(f"a list is not of {count} clients")
        if self.overlap and len(self.overlap.matrix) != count + 1:
            raise ValueError(f"the overlaps are not of {count} clients and the global model")
        return self

    @property
    def numbers(self) -> tuple[int, ...]:
        """The clients' numbers."""
        return tuple(one.number for one in self.clients)

    def of(self, quantity: Quantity) -> Flatness | None:
        """Return the cells of a quantity; None where it was not measured."""
        return next((one for one in self.flatness if one.quantity == quantity), None)


def amount_entry(one: Paired) -> dict[str, Any]:
    """Return the entry of a number; its interval is cut to its range."""
    low, high = one.interval()
    ends = [max(one.low, low), min(one.high, high)] if math.isfinite(low) and math.isfinite(high) else None
    return {
        "value": one.value,
        "stderr_probe": one.stderr_probe,
        "stderr_data": one.stderr_data,
        "dof": or_null(one.dof),
        "bias": one.bias,
        "interval": ends,
        "resolved": is_resolved(one.value, ends, one.low, one.high),
    }
