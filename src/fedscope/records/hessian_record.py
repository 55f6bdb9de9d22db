"""The curvature of one checkpoint: the record of ``fedscope hessian --json``, ``fedscope/hessian/1``."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import Eigenvalue, Entry, Errors, EstimateEntry, freedom_of
from fedscope.records.influence_entry import Influence
from fedscope.records.number_types import Count, Interval, Many, Number, Several
from fedscope.validation import Plain

HESSIAN_SCHEMA = "fedscope/hessian/1"


class CheckpointEntry(Plain):
    """Which weights were measured."""

    # hash of the tensors: names, types, shapes, numbers
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")]
    path: str = ""  # of the file, as it was named
    run: str | None = None  # its run; None: a file that lies in no run
    round: Count | None = None  # rounds completed when the weights were taken [rounds]
    client: Count | None = None  # number of the client; None: a global model
    # local steps that the client had made; None: all of its round
    step: Count | None = Field(None, exclude_if=lambda step: step is None)
    average: str | None = None  # which of the global models: ``cld``, ``sel``, ``all`` or ``sent``

    @property
    def other_average(self) -> str | None:
        """Which of the global models, where it is not the run's own."""
        return None if self.average == "cld" else self.average


class ProblemEntry(Plain):
    """Network, samples and operator."""

    samples: Count  # that were measured on [samples]
    # that they were drawn from; None: infinite [samples]
    population: Count | None = None
    batch_size: Count | None = None  # samples at a time; None: not stated [samples]
    model: str | None = None  # the network: of the catalogue, or MODULE:FACTORY
    lora: str | None = None  # the adapters that alone were measured; None: all of the network
    method: str | None = None  # that the run was trained with
    dataset: str | None = None  # of the catalogue, or MODULE:FACTORY
    split: str | None = None  # ``train``, ``validation`` or ``test``; None: of the user's own data
    seed: int | None = None  # of the draw of samples and of the probes
    dtype: str | None = None  # of weights and products; None: not stated
    device: str | None = None  # that computed; None: not stated
    threads: Count | None = None  # of the processor; None: not stated
    operator: str = "hessian"  # ``hessian``, ``ggn`` or ``fisher``
    engine: str | None = None  # ``fedscope``, ``pyhessian`` or ``power``
    # ``paper`` or ``code``: as the paper defines the metrics, or as its scripts compute them
    reading: str | None = None
    parameters: str | None = None  # patterns of names; None: all parameters
    bn: str | None = None  # statistics of BatchNorm: ``eval``, ``recalibrate`` or ``batch``
    loss: str | None = None  # another than cross-entropy
    augmented: bool = False  # whether each sample was measured once as augmented in training
    normalisation: str | None = None  # the pipeline whose constants images got; None: the run's own
    products: str | None = None  # ``finite-differences`` of gradients; None: exact
    form: str | None = None  # of the network: ``fast`` or ``plain``; None: not stated
    notes: Many[str] = ()  # what its numbers are of, where that is not as one would expect
    form_reason: str | None = None  # why no faster form of the network was used
    whole: bool = False  # whether they are all samples of the user's own data
    departs: str | None = None  # what was measured, where the gradient is not the loss's own

    @property
    def is_usual(self) -> bool:
        """Whether it is of the whole Hessian, by our own estimators, of the samples as they are.

        On the data of a run the loss is cross-entropy; one's own data may have another.
        """
        kind = (self.operator, self.engine, self.reading, self.parameters, self.augmented, self.departs)
        own_loss = self.loss is None or self.split is None
        usual = self.products is None and self.normalisation is None and own_loss
        return usual and kind == ("hessian", "fedscope", "paper", None, False, None)


class Layer(Eigenvalue):
    """λ_max of a layer's own block."""

    name: str  # of the layer


class TraceEntry(Entry):
    """The trace, with its errors over probes and over samples."""

    stderr_probe: Number  # standard error over the random probes [loss/w²]
    stderr_data: Number  # standard error over the samples [loss/w²]
    dof_data: Number = math.nan  # degrees of freedom of ``stderr_data``; NaN: one less than there are batches
    interval: Interval | None = None  # 95 %, of the population's value: both errors together [loss/w²]
    probes: Count = 0  # random vectors that were taken [probes]
    # dimensions of the Krylov basis in which the trace is exact; None: not stated
    deflated: Count | None = None
    # whether the precision that was asked for is reached; None: none was asked for
    converged: bool | None = None
    # what finite differences may have moved it by, in ``interval``; 0 of exact products [loss/w²]
    product_error: float = 0.0
    samples: Many[Number] | None = None  # its part from each probe [loss/w²]
    batches: Many[Number] | None = None  # its part from each batch [loss/w²]

    @property
    def stated_errors(self) -> Errors:
        freedom = freedom_of(self.batches) if math.isnan(self.dof_data) else self.dof_data
        return (self.stderr_probe, freedom_of(self.samples)), (self.stderr_data, freedom)


class NegativeMass(EstimateEntry):
    """The share of eigenvalues below ``below``."""

    below: float | None = None  # minus ``sigma``; None: not stated [loss/w²]


class DensityEntry(Plain):
    """The spectral density on a grid, with each point's 95 % band."""

    grid: Many[Number]  # where the density is given [loss/w²]
    density: Many[Number]  # share of eigenvalues per unit, at each point; its integral is 1
    # lower and upper ends of each point's 95 % interval over probes; None where unknown
    band: Annotated[tuple[Many[Number], ...], Field(strict=False, min_length=2, max_length=2)] | None = None
    # standard deviation of the Gaussian that smooths it [loss/w²]
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    probes: Count | None = None  # random starts; None: not stated [probes]
    negative_mass: NegativeMass  # the share of eigenvalues below minus ``sigma``
    # of the quadrature, a row for each probe [loss/w²]
    nodes: Many[Many[Number]] = ()
    weights: Many[Many[Number]] = ()  # of the nodes: each row adds up to 1
    moments: Many[EstimateEntry] = ()  # mean of the eigenvalues and of their squares

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

    quantity: str  # as tables call it
    to: str  # SHA-256 of the first record's checkpoint
    value: Number  # this record's value less the first one's
    stderr: Number  # standard error of the difference, of probes and samples together
    interval: Interval | None  # 95 %, of this difference alone
    p: Number = math.nan  # of no difference
    joint_p: Number = math.nan  # ``p`` adjusted for the other differences of the table (Holm 1979)
    # from ``joint_p`` at 5 %; None: a distance, which has no sign
    verdict: Literal["lower", "higher", "undecided"] | None
    # why one of more than two standard errors is undecided: degrees of freedom and p, or a bound
    reason: str = ""


class PreconditionedEntry(Plain):
    """λ_max of P⁻¹H with P = diag(√s + ε) of the server, and how large it may be."""

    optimizer: str  # of the server: ``adagrad``, ``adam`` or ``yogi``
    lambda_max: Eigenvalue  # of P^(-1/2) H P^(-1/2)
    converged: bool  # whether it reached ``--tol``
    smallest: Number  # of the diagonal of P [w]
    largest: Number  # of the diagonal of P [w]
    beta1: Number  # of the server's average of displacements
    gamma: Number  # the server's learning rate
    steps: Count  # local steps of a mean client [steps]
    # γηa: how far the server moves, times P, under a unit gradient; a: what the local steps at unit rate move
    rate: Number
    stable: Number  # the largest stable λ of P⁻¹H, 2(1 + β₁)/((1 − β₁)·rate)
    state_sha256: str  # hash of the server's vectors
    matvecs: Count = 0  # Hessian–vector products [products]

    def nonlinearity(self, lambda_max: float) -> float:
        """Return ηa·λ_max of the Hessian itself: far below 1 the clients' displacement is −ηa∇F."""
        return lambda_max * self.rate / self.gamma if self.gamma else 0.0

    @property
    def ratio(self) -> float:
        """λ_max in units of the largest stable one."""
        return self.lambda_max.value / self.stable


class HessianRecord(Plain):
    """What was measured of one checkpoint."""

    schema_name: Literal["fedscope/hessian/1"] = Field(alias="schema")  # name and version of this format
    checkpoint: CheckpointEntry  # which weights were measured
    problem: ProblemEntry  # on which samples, of which operator
    samples_sha256: str | None = None  # of inputs and targets; None: not stated
    batch_sizes: Many[Count] = ()  # of the products [samples]
    lambda_max: Eigenvalue  # the largest eigenvalue: the first of ``eigenvalues``
    eigenvalues: Many[Eigenvalue]  # the ``--top-k`` largest, descending
    both_ends: bool = False  # whether the last half of the eigenvalues are the smallest
    layers: Several[Layer] = ()  # λ_max of each layer's own diagonal block (``--layers``)
    blocks: Several[Layer] = ()  # λ_max of each block of a stack, such as a transformer's (``--blocks``)
    converged: bool | None = None  # whether every eigenvalue reached ``--tol``
    noise: Number = math.nan  # what rounding may have moved λ_max by [loss/w²]
    trace: TraceEntry | None  # the trace and its errors; None: ``--only lambda_max``
    density: DensityEntry | None  # of the eigenvalues (``--density``)
    cross_client: CrossClientEntry | None  # the clients compared (``--clients``)
    influence: Influence | None = None  # which samples carry λ_max; None: not asked for, or not known
    # λ_max of P⁻¹H of an adaptive server; None: not asked for (``--preconditioned``)
    preconditioned: PreconditionedEntry | None = None
    # length of the steps of finite differences, in weights; None: products were exact
    step: float | None = None
    matvecs: int = 0  # Hessian–vector products that were computed [products]
    seconds: float = 0.0  # wall time [s]
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed
    operator_sha256: str | None = None  # what a kept result is found by; None: not kept
    reused: bool = False  # whether it was found in the registry, not measured
    non_finite: Count = 0  # numbers that are null because they were not finite
    differences: Many[Compared] = ()  # to the first of several records that are printed together

    @property
    def ends(self) -> tuple[tuple[Eigenvalue, ...], tuple[Eigenvalue, ...]]:
        """The largest eigenvalues and the smallest, each descending."""
        split = len(self.eigenvalues) // 2 if self.both_ends else len(self.eigenvalues)
        return self.eigenvalues[:split], self.eigenvalues[split:]
