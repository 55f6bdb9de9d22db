"""The clients of a checkpoint compared: the entry ``cross_client`` of schema ``fedscope/hessian/1``."""

from typing import Generic, Literal, Self, TypeVar

from pydantic import model_validator

from fedscope.choices import Reading
from fedscope.records.estimates import Eigenvalue, Estimate, Symbol
from fedscope.records.numbers import Count, Many, Number, Several
from fedscope.statistics.resolution import RANGES, is_resolved
from fedscope.validation import Plain

READINGS: tuple[Reading, ...] = ("tensor", "parameter")
Value = TypeVar("Value")
Matrix = Many[Many[Number]]  # (K, K)


class ByReading(Plain, Generic[Value]):
    """A quantity in either reading; None where a reading was not measured."""

    tensor: Value | None = None
    parameter: Value | None = None


class Means(ByReading[Estimate]):
    """The mean over pairs of clients."""

    tensor: Estimate | None
    parameter: Estimate | None


class BySymbol(Plain, Generic[Value]):
    """What H_N and H_D of every pair of clients have."""

    H_N: ByReading[Value] | None = None
    H_D: ByReading[Value] | None = None

    def of(self, symbol: Symbol, reading: Reading) -> Value | None:
        """Return what one of them has in one reading."""
        found = self.H_N if symbol == "H_N" else self.H_D
        return (found.tensor if reading == "tensor" else found.parameter) if found else None


class CrossClient(Plain):
    """How much the curvature of the clients' models differs."""

    clients: Count
    pairs: Literal["distinct", "all_including_self"]
    H_N: Means
    H_D: Means
    weights: str | None = None
    data: str | None = None
    probes: Count | Many[Count] = 0  # of each client, where it differs from client to client
    converged: bool | None = None
    numbers: Several[Count] = ()
    rounds: Several[Count | None] = ()  # that each client's weights are of
    traces: Several[Estimate] = ()
    lambda_max: Several[Eigenvalue] = ()
    overlap_k: int | None = None
    overlap: Several[Number] = ()
    matrices: BySymbol[Matrix] | None = None
    matrices_resolved: BySymbol[Many[Many[bool]]] | None = None
    populations: BySymbol[Estimate] | None = None  # of what the clients' samples were drawn from
    uploads: dict[str, str] | None = None  # the clients' files and their hashes
    rows: str | None = None  # "redrawn": the run did not store which rows the clients hold
    rows_sha256: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for name in ("numbers", "rounds", "traces", "lambda_max", "overlap"):
            values = getattr(self, name)
            if values and len(values) != self.clients:
                raise ValueError(f"{name} are not of {self.clients} clients")
        return self

    @property
    def client_numbers(self) -> tuple[int, ...]:
        """The clients' numbers; of an older record, which does not state them, 0, 1, 2, …"""
        return self.numbers or tuple(range(self.clients))

    def mean(self, symbol: Symbol, reading: Reading) -> Estimate | None:
        """Return the mean over pairs; None where the reading was not measured."""
        means = self.H_N if symbol == "H_N" else self.H_D
        return means.tensor if reading == "tensor" else means.parameter

    def population(self, symbol: Symbol, reading: Reading) -> Estimate | None:
        """Return the mean over pairs for what the samples were drawn from; None where it is not known."""
        return self.populations.of(symbol, reading) if self.populations else None

    def compared(self, symbol: Symbol, reading: Reading) -> Estimate | None:
        """Return what is compared with another record's: :meth:`population`, or else :meth:`mean`."""
        return self.population(symbol, reading) or self.mean(symbol, reading)

    def matrix(self, symbol: Symbol, reading: Reading) -> Matrix | None:
        """Return the value of each pair, NaN where there is none; None where there is no matrix."""
        return self.matrices.of(symbol, reading) if self.matrices else None

    def resolved(self, symbol: Symbol, reading: Reading) -> list[list[bool]]:
        """Return for each pair whether its value in :meth:`matrix` is resolved.

        In an older record, which does not state it, pairs are unresolved where they are out of the range or
        have no value.
        """
        stated = self.matrices_resolved.of(symbol, reading) if self.matrices_resolved else None
        if stated is not None:
            return [list(row) for row in stated]
        low, high = RANGES[symbol]
        return [
            [is_resolved(value, None, low, high) for value in row]
            for row in self.matrix(symbol, reading) or ()
        ]
