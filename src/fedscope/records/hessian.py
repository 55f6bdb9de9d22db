"""The curvature of one checkpoint: the record of ``fedscope hessian --json``, ``fedscope/hessian/1``."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedscope.records.cross_client import CrossClient
from fedscope.records.estimates import Eigenvalue, Entry, Errors, Estimate, freedom_of, known
from fedscope.records.influence import Influence
from fedscope.records.numbers import Count, Interval, Many, Number, Several
from fedscope.validation import Plain

HESSIAN_SCHEMA = "fedscope/hessian/1"


class Checkpoint(Plain):
    """Which weights were measured."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")]
    path: str = ""
    run: str | None = None  # None: a file that lies in no run
    round: Count | None = None
    client: Count | None = None  # None: a global model
    average: str | None = None  # which of the global models

    @property
    def other_average(self) -> str | None:
        """Which of the global models, where it is not the run's own."""
        return None if self.average == "cld" else self.average


class Problem(Plain):
    """Network, samples and operator."""

    samples: Count
    population: Count | None = None  # that they were drawn from; None: infinite, or of an older record
    model: str | None = None
    method: str | None = None
    dataset: str | None = None
    split: str | None = None
    seed: int | None = None
    operator: str = "hessian"
    engine: str | None = None
    reading: str | None = None
    parameters: str | None = None  # patterns of names; None: all parameters
    bn: str | None = None
    loss: str | None = None  # another than cross-entropy
    augmented: bool = False  # each sample once, as in training
    form_reason: str | None = None  # why no faster form of the network was used

    @property
    def is_usual(self) -> bool:
        """Whether it is of the whole Hessian, by our own estimators, of the samples as they are.

        On the data of a run the loss is cross-entropy; one's own data may have another.
        """
        kind = (self.operator, self.engine, self.reading, self.parameters, self.augmented)
        own_loss = self.loss is None or self.split is None
        return kind == ("hessian", "fedscope", "paper", None, False) and own_loss


class Layer(Eigenvalue):
    """λ_max of a layer's own block."""

    name: str


class Trace(Entry):
    """The trace, with its errors over probes and over samples."""

    stderr_probe: Number
    stderr_data: Number
    interval: Interval | None = None
    probes: Count = 0
    converged: bool | None = None
    samples: Many[Number] | None = None  # its part from each probe
    batches: Many[Number] | None = None  # and from each batch

    @property
    def errors(self) -> Errors:
        """The standard errors that are known."""
        return known(
            (self.stderr_probe, freedom_of(self.samples)), (self.stderr_data, freedom_of(self.batches))
        )


class NegativeMass(Estimate):
    """The share of eigenvalues below ``below``."""

    below: float | None = None  # None, of an older record: below zero, which the nodes' signs do not tell


class Density(Plain):
    """The spectral density on a grid, with each point's 95 % band."""

    grid: Many[Number]
    density: Many[Number]
    band: Annotated[tuple[Many[Number], ...], Field(strict=False, min_length=2, max_length=2)] | None = None
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    negative_mass: NegativeMass
    nodes: Many[Many[Number]] = ()  # of the quadrature, a row for each probe; none of an older record
    weights: Many[Many[Number]] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        ends = [self.density, *(self.band or ())]
        if len(self.grid) < 3 or any(len(end) != len(self.grid) for end in ends):
            raise ValueError("the density does not fit its grid")
        if [*map(len, self.nodes)] != [*map(len, self.weights)]:
            raise ValueError("the density's weights do not fit its nodes")
        return self


class Compared(Plain):
    """A difference to the first of several records, or a distance from it, which has no verdict."""

    quantity: str
    to: str  # SHA-256 of the first record's checkpoint
    value: Number
    stderr: Number
    interval: Interval | None
    p: Number = math.nan  # of no difference
    joint_p: Number = math.nan  # adjusted for the other differences of the table (Holm 1979)
    verdict: Literal["lower", "higher", "undecided"] | None


class HessianRecord(Plain):
    """What was measured of one checkpoint."""

    schema_name: Literal["fedscope/hessian/1"] = Field(alias="schema")
    checkpoint: Checkpoint
    problem: Problem
    samples_sha256: str | None = None  # None of an older record
    batch_sizes: Many[Count] = ()  # none of an older record
    lambda_max: Eigenvalue
    eigenvalues: Many[Eigenvalue]
    both_ends: bool = False  # the last half of the eigenvalues are the smallest
    layers: Several[Layer] = ()
    converged: bool | None = None
    noise: Number = math.nan  # of rounding, in λ_max
    trace: Trace
    density: Density | None
    cross_client: CrossClient | None
    influence: Influence | None = None  # None where it was not asked for, or the samples' parts are not known
    matvecs: int = 0
    seconds: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
    operator_sha256: str | None = None  # None of an older record
    reused: bool = False  # found, not measured
    differences: Many[Compared] = ()  # to the first of several records that are printed together

    @property
    def ends(self) -> tuple[tuple[Eigenvalue, ...], tuple[Eigenvalue, ...]]:
        """The largest eigenvalues and the smallest, each descending."""
        split = len(self.eigenvalues) // 2 if self.both_ends else len(self.eigenvalues)
        return self.eigenvalues[:split], self.eigenvalues[split:]
