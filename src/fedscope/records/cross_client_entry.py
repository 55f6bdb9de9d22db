"""A checkpoint's clients compared: ``cross_client`` of two schemas; noise, critical steps and barriers."""

import math
from typing import Generic, Literal, Self, TypeVar

from pydantic import model_validator

from fedscope.choices import Anchor, Reading
from fedscope.pairing import Pairing
from fedscope.records.estimates import Eigenvalue, EstimateEntry, MeanSymbol, Symbol
from fedscope.records.number_types import Count, Many, Number, Several
from fedscope.validation import Plain

READINGS: tuple[Reading, ...] = ("tensor", "parameter")
Value = TypeVar("Value")
Matrix = Many[Many[Number]]  # (K, K)


class ByReading(Plain, Generic[Value]):
    """A quantity in either reading; None where a reading was not measured."""

    tensor: Value | None = None  # of block traces, one per parameter tensor
    parameter: Value | None = None  # of the diagonal's entries, one per parameter


class Means(ByReading[EstimateEntry]):
    """The mean over pairs of clients."""

    tensor: EstimateEntry | None  # of block traces, one per parameter tensor
    parameter: EstimateEntry | None  # of the diagonal's entries, one per parameter


class BySymbol(Plain, Generic[Value]):
    """What H_N and H_D of every pair of clients have."""

    H_N: ByReading[Value] | None = None  # (‖D_k‖ − ‖D_j‖)² of each pair [(loss/w²)²]
    H_D: ByReading[Value] | None = None  # the cosine of D_k and D_j of each pair

    def of(self, symbol: Symbol, reading: Reading) -> Value | None:
        """Return what one of them has in one reading."""
        found = self.H_N if symbol == "H_N" else self.H_D
        return (found.tensor if reading == "tensor" else found.parameter) if found else None


class Populations(BySymbol[EstimateEntry]):
    """Means over pairs of clients of what their samples were drawn from."""

    # the mean over pairs of (‖D_k‖ − ‖D_j‖)²/(‖D_k‖·‖D_j‖)
    H_N_scale_free: ByReading[EstimateEntry] | None = None


class CrossClientEntry(Plain):
    """How much the curvature of the clients' models differs."""

    clients: Count  # how many were compared
    pairs: Literal["distinct", "all_including_self"]  # that the means are over
    H_N: Means  # Hessian norm: mean over pairs of (‖D_k‖ − ‖D_j‖)² [(loss/w²)²]
    H_D: Means  # Hessian direction: mean over pairs of the cosine of D_k and D_j, from −1 to 1
    # H_N divided by ‖D_k‖·‖D_j‖ pair by pair: the mean over pairs of (‖D_k‖ − ‖D_j‖)²/(‖D_k‖·‖D_j‖)
    H_N_scale_free: ByReading[EstimateEntry] | None = None
    weights: str | None = None  # ``client`` or ``global``: whose weights were measured
    data: str | None = None  # ``own`` or ``global``: on each client's own rows, or on the same for all
    probes: Count | Many[Count] = 0  # of each client, where it differs from client to client [probes]
    # rows of the Krylov bases in which the diagonals are exact; None: not stated
    deflated: Count | None = None
    aim: Reading | None = None  # the reading whose intervals ``--client-rtol`` was about; None: fixed probes
    converged: bool | None = None  # whether these intervals are as narrow as was asked for
    numbers: Several[Count] = ()  # the clients' numbers; none: 0, 1, 2, …
    rounds: Several[Count | None] = ()  # that each client's weights are of [rounds]
    traces: Several[EstimateEntry] = ()  # the trace of each client's Hessian [loss/w²]
    lambda_max: Several[Eigenvalue] = ()  # the largest eigenvalue of each client's Hessian
    overlap_k: int | None = None  # eigenvectors in each eigenspace of ``overlap``
    overlap: Several[Number] = ()  # of each client's leading eigenspace with the global model's, from 0 to 1
    # whether all these eigenvectors reached ``--tol``; None: there is no overlap
    overlap_converged: bool | None = None
    # ‖D_k‖² of each client; None: not stated [(loss/w²)²]
    squared_norms: ByReading[Many[EstimateEntry]] | None = None
    matrices: BySymbol[Matrix] | None = None  # the value of each pair; NaN on the diagonal
    matrices_resolved: BySymbol[Many[Many[bool]]] | None = None  # whether the value of each pair is resolved
    # H_N and H_D of all that the clients' samples were drawn from
    populations: Populations | None = None
    uploads: dict[str, str] | None = None  # the clients' files and their hashes
    rows: str | None = None  # "redrawn": the run did not store which rows the clients hold
    rows_sha256: str | None = None  # hash of the rows that the clients hold
    pairing: Pairing | None = None  # whose the models are, and which are equal; None: at the global weights

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for name in ("numbers", "rounds", "traces", "lambda_max", "overlap"):
            values = getattr(self, name)
            if values and len(values) != self.clients:
                raise ValueError(f"{name} are not of {self.clients} clients")
        return self

    @property
    def client_numbers(self) -> tuple[int, ...]:
        """The clients' numbers; where they are not stated, 0, 1, 2, …"""
        return self.numbers or tuple(range(self.clients))

    def mean(self, symbol: MeanSymbol, reading: Reading) -> EstimateEntry | None:
        """Return the mean over pairs; None where the reading was not measured."""
        return _of(self, symbol, reading)

    def population(self, symbol: MeanSymbol, reading: Reading) -> EstimateEntry | None:
        """Return the mean over pairs for what the samples were drawn from; None where it is not known."""
        return _of(self.populations, symbol, reading)

    def matrix(self, symbol: Symbol, reading: Reading) -> Matrix | None:
        """Return the value of each pair, NaN where there is none; None where there is no matrix."""
        return self.matrices.of(symbol, reading) if self.matrices else None

    def resolved(self, symbol: Symbol, reading: Reading) -> list[list[bool]]:
        """Return for each pair whether its value in :meth:`matrix` is resolved."""
        stated = self.matrices_resolved.of(symbol, reading) if self.matrices_resolved else None
        if stated is not None:
            return [list(row) for row in stated]
        return [[not math.isnan(value) for value in row] for row in self.matrix(symbol, reading) or ()]


def _of(
    found: CrossClientEntry | Populations | None, symbol: MeanSymbol, reading: Reading
) -> EstimateEntry | None:
    entries: ByReading[EstimateEntry] | None = getattr(found, symbol, None)
    return getattr(entries, reading, None)


class NoiseScaleEntry(Plain):
    """How the gradients of one loss scatter over its samples (McCandlish et al. 2018)."""

    trace: EstimateEntry  # tr Σ of the gradients of single samples [loss²/w²]
    square: EstimateEntry  # ‖G‖² of their mean [loss²/w²]
    scale: EstimateEntry  # noise scale tr Σ/‖G‖²; null: an infinite end of the interval [samples]
    samples: Count  # that were taken [samples]


class Noise(Plain):
    """How the clients' gradients g_k at the global model scatter, within and between clients."""

    clients: Many[NoiseScaleEntry]  # of each client's own loss
    whole: NoiseScaleEntry  # of Σ p_k f_k
    within: EstimateEntry  # Σ p_k tr Σ_k [loss²/w²]
    between: EstimateEntry  # ζ² = Σ p_k ‖g_k − g‖² [loss²/w²]
    apart: Many[EstimateEntry]  # ‖g_k − g‖² of each client [loss²/w²]
    relative: EstimateEntry  # ζ²/‖g‖²
    dissimilarity: EstimateEntry  # B² = Σ p_k ‖g_k‖²/‖g‖² = 1 + ζ²/‖g‖²


class CriticalStepEntry(Plain):
    """How far along an update the global loss stays below where it began; 1 is the update itself."""

    step: Number  # η_c; null where the loss never rises, and of an update within the weights' rounding
    stderr: Number  # standard error over the samples
    interval: Many[Number]  # 95 %
    length: Number  # ‖Δ‖ [w]
    rises_at_once: bool  # whether every step that was tried raises the loss
    never_rises: bool  # whether none does

    @property
    def sharpness(self) -> float:
        """The critical sharpness λ_c = 2/η_c of the update (Kalra et al. 2026)."""
        return float("inf") if self.rises_at_once else 0.0 if self.never_rises else 2 / self.step


class Critical(Plain):
    """Critical steps along the clients' updates and along their mean, the server's pseudo-gradient."""

    anchor: Anchor  # what updates are from
    loss: Number  # global loss there [loss]
    server: CriticalStepEntry  # along Σ p_k Δ_k
    clients: Many[CriticalStepEntry]  # along each Δ_k


class Barriers(Plain):
    """How far the global loss rises between the clients' models."""

    mean: EstimateEntry  # over the pairs [loss]
    average: EstimateEntry  # F(w̄) − Σ p_k F(w_k), of the average of all [loss]
    matrix: Matrix  # (K, K): of each pair; NaN on the diagonal [loss]
    stderr: Matrix  # standard errors over the samples [loss]
    similarities: Matrix  # (K, K): cosines of the parameters
    low: Matrix | None = None  # lower ends of the 95 % intervals, 0 at least [loss]
    high: Matrix | None = None  # upper ends [loss]
