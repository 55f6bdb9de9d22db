"""The descriptions of a run, a round and a checkpoint: plain, versioned data, validated on reading.

They name models, data sets and methods by their catalogue names only, so that a checkpoint can be described,
listed and verified without building any of them. The file is long because it is one format: each of its
models is a field of the next, down to ``Manifest`` and ``CheckpointInfo``, and a third of it are the fields
of ``Settings``, which are the options of ``fedscope train``.
"""

import operator
import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedscope.checkpoints.file.diagnostics import Diagnostics
from fedscope.errors import UserError
from fedscope.own import SHOWN, is_own
from fedscope.validation import Plain, refusal

OPTION = "option"  # where the fields are what the user typed
UNKNOWN = "unknown"  # the method and the partition of a run that was added without
PROBE_SAMPLES = 512  # that --probe-curvature measures on, unless another number is asked for
MOST_ROWS = 1 << 26  # that the clients of a run hold together: 256 MiB
# no path, no device of any system
NAME = re.compile(r"(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?\+00:00")

Positive = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _plain_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no run name")
    return name


Name = Annotated[str, AfterValidator(_plain_name)]


def _moment(text: str) -> str:
    if not _MOMENT.fullmatch(text):
        raise ValueError(f"{text[:100]!r} is no time such as 2026-01-31T12:00:00+00:00")
    datetime.fromisoformat(text)
    return text


Moment = Annotated[str, AfterValidator(_moment)]  # ISO 8601, UTC: such texts sort as their times do


def _later(default: Any) -> Any:
    """Declare a field that older records lack: with its default it is not written, so that hashes stay."""
    return Field(default, exclude_if=partial(operator.eq, default))


class Record(BaseModel):
    """Base of all records: immutable, and an unknown field is an error rather than ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=BaseModel)


class ModelSpec(Record):
    """A network: logits over ``classes`` from images of ``channels``; or only its name.

    The fields but ``source`` are the arguments of ``models.catalogue.build``; those a record lacks describe a
    plain network.
    """

    name: str  # of the catalogue, or MODULE:FACTORY
    classes: Positive | None = None  # None: a network of the user's own, to be named at every use
    channels: Positive | None = None  # of the images; None as ``classes``
    head: bool = False  # MOON's projection before the classifier
    shortcut: Literal["A", "B"] | None = None  # where the network was published with both; None: its default
    keep: Annotated[float, Field(gt=0, le=1)] = 1.0  # stochastic depth: of the last block, in eval mode too
    schedule: Literal["code", "paper"] = "code"  # of stochastic depth over the blocks
    source: str = Field("", exclude_if=operator.not_)  # SHA-256 of the file of one that is MODULE:FACTORY

    @property
    def own(self) -> bool:
        """Whether the network is the user's own, MODULE:FACTORY."""
        return is_own(self.name)


class DataSpec(Record):
    """A data set, its augmentation pipeline, and the SHA-256 of its content; or only its name."""

    name: str  # of the catalogue, or MODULE:FACTORY
    augmentation: str = "none"  # the pipeline that trained on it
    fingerprint: str = ""  # SHA-256 of the content; empty: not known
    train_samples: Positive | None = None  # in the training split; None: not known [samples]
    test_samples: Positive | None = None  # in the test split; None: not known [samples]
    source: str = Field("", exclude_if=operator.not_)  # SHA-256 of the file of data that is MODULE:FACTORY


class Settings(Record):
    """Everything that determines the bits of a run; the fields are the options of ``fedscope train``."""

    method: str = "fedavg"
    options: dict[str, bool | int | float | str] = {}  # of the method, by name (``--set``)
    reading: Literal["paper", "code"] = "paper"
    dataset: str = "digits"
    test_data: str | None = Field(None, exclude_if=operator.not_)  # of a data set of the user's own
    augmentation: str | None = None
    model: str | None = None
    partition: str = "dirichlet_balanced"
    alpha: float | None = 0.5
    exhausted: Literal["redraw", "refill"] = "redraw"
    phi: Annotated[float, Field(gt=0, le=1)] | None = None
    rho: Annotated[float, Field(gt=0, le=1)] | None = None
    shards: Positive | None = _later(None)
    classes_per_client: Positive | None = _later(None)
    clients: Positive = 8
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampling: Literal["all", "fixed_fraction", "bernoulli"] = "fixed_fraction"
    memory: Literal["keep", "reset"] = "keep"
    rounds: Positive = 20
    epochs: Positive = 2
    local_steps: Positive | None = _later(None)
    stragglers: Annotated[float, Field(ge=0, le=1)] = _later(0.0)
    straggler_min: Positive = _later(1)
    batch_size: Positive = 32
    lr: NonNegative = 0.05
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lr_schedule: Literal["exponential", "step", "cosine"] = _later("exponential")
    lr_step: Positive | None = _later(None)
    lr_min: NonNegative = _later(0.0)
    lr_warmup: Annotated[int, Field(ge=0)] = _later(0)
    optimizer: Literal["sgd", "adam", "adamw"] = _later("sgd")
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = _later(0.9)
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = _later(0.999)
    adam_eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = _later(1e-8)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    optimizer_state: Literal["round", "client"] = "round"
    weight_decay: NonNegative = 1e-4
    clip: Annotated[float, Field(gt=0)] | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    head: bool | None = None
    shortcut: Literal["A", "B"] | None = None
    drop_last: bool = False
    weights: Literal["n_k", "n_used", "uniform"] | None = None
    stack: Positive = 1
    train_samples: Positive | None = None
    test_samples: Positive | None = None
    clients_limit: Positive | None = None
    steps_limit: Positive | None = None
    validation: Annotated[float, Field(ge=0, le=0.5)] = Field(0.0, exclude_if=operator.not_)
    evaluate_on: Literal["test", "validation"] = "test"
    eval_model: Literal["cld", "sel", "all"] = "cld"
    eval_drop_last: bool | None = None
    target: Annotated[float, Field(gt=0, le=1)] | None = None
    shift: Literal["none", "bernoulli", "fixed10"] = "none"
    shift_probability: Annotated[float, Field(ge=0, le=1)] = 0.05
    shift_sequence: Annotated[int, Field(ge=0)] = 0
    shift_metric: Literal["mean_best_since_shift", "mean_current"] = "mean_best_since_shift"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: str = "cpu"
    threads: Positive = 1
    save_clients: Literal["last", "all", "none"] = "last"
    keep_every: Annotated[int, Field(ge=0)] = 0
    probe_curvature: Annotated[int, Field(ge=0)] = Field(0, exclude_if=operator.not_)
    probe_samples: Positive = Field(PROBE_SAMPLES, exclude_if=lambda count: count == PROBE_SAMPLES)

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> "Settings":
        if self.nesterov and not self.momentum:
            raise ValueError("Nesterov momentum needs --momentum above 0")
        return self

    @model_validator(mode="after")
    def _momentum_is_of_sgd(self) -> "Settings":
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"--momentum is of --optimizer sgd; use --momentum 0 with {self.optimizer}, which has "
                "--adam-beta1"
            )
        return self

    @model_validator(mode="after")
    def _rate_can_fall(self) -> "Settings":
        if (self.lr_schedule == "step") != (self.lr_step is not None):
            raise ValueError(
                "--lr-schedule step needs --lr-step, the rounds from one drop to the next; no other takes it"
            )
        if self.lr_min > self.lr:
            raise ValueError(f"--lr-min {self.lr_min:g} is above --lr {self.lr:g}; lower it")
        return self

    @model_validator(mode="after")
    def _stragglers_do_less(self) -> "Settings":
        most = self.local_steps or self.epochs
        if self.stragglers and self.straggler_min > most:
            what = "steps" if self.local_steps else "epochs"
            raise ValueError(f"--straggler-min {self.straggler_min} is above {most} {what}; lower it")
        return self

    @model_validator(mode="after")
    def _shifts_are_on(self) -> "Settings":
        if self.shift == "none" and (self.shift_probability, self.shift_sequence) != (0.05, 0):
            raise ValueError(
                "--shift-probability and --shift-sequence have no effect without --shift; leave them out, or "
                "add --shift bernoulli or fixed10"
            )
        return self

    @model_validator(mode="after")
    def _validates_once(self) -> "Settings":
        if self.validation and self.evaluate_on == "validation":
            raise ValueError(
                "--evaluate-on validation is the data set's own split; leave it out, or --validation"
            )
        return self

    @model_validator(mode="after")
    def _stacks_are_plain(self) -> "Settings":
        if self.stack > 1 and (self.compile or self.precision != "fp32"):
            raise ValueError(
                "--stack is for small models in fp32; use it without --compile and --precision bf16"
            )
        return self


class PresetUse(Record):
    """The preset that a run started from, what the user changed, and which of its values no source gives."""

    name: str  # as ``fedscope presets list`` has it
    overridden: tuple[str, ...] = ()  # settings and options
    provisional: dict[str, str] = {}  # setting or option → why its value is only a proposal


class Added(Record):
    """The origin of a run that another program trained, and which of its settings are known."""

    source: str  # file, folder or program
    stated: tuple[
        str, ...
    ] = ()  # the settings that are known; the others have their defaults, which mean nothing
    notes: tuple[str, ...] = ()  # what was renamed or left out


class RowsSpec(Record):
    """The rows of the training set that clients hold: how many each, and a hash of counts and rows."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of counts and rows
    counts: tuple[Annotated[int, Field(ge=0)], ...]  # of each client [samples]
    validation: Annotated[int, Field(ge=0)] = 0  # held out of all clients' rows [samples]

    @model_validator(mode="after")
    def _fit_memory(self) -> "RowsSpec":
        if sum(self.counts) + self.validation > MOST_ROWS:
            raise ValueError(f"the clients hold more than {MOST_ROWS} rows")
        return self


class MethodCode(Record):
    """Another package's method, and a hash of the package's source files."""

    method: str  # its name
    package: str = ""  # that brings it
    version: str = ""  # of the package
    source: str = ""  # SHA-256; "" where there are no files

    @property
    def text(self) -> str:
        """The method, its package with the version, and the beginning of the hash."""
        return f"{self.method} of {self.package} {self.version}, {self.source[:SHOWN] or 'no source files'}"


class Manifest(Record):
    """A run, as written when it starts."""

    format: Literal["fedscope/run/2"] = "fedscope/run/2"  # name and version of this format
    name: Name  # of the run
    created: Moment  # when it started, UTC
    settings: Settings  # all options of the training
    model: ModelSpec  # the network
    data: DataSpec  # the data set
    versions: dict[str, str]  # of fedscope and the packages that trained
    # None of an older or an added run, and where every round's clients are new: see Round.rows
    rows: RowsSpec | None = Field(None, exclude_if=operator.not_)
    preset: PresetUse | None = None  # that it started from
    methods: tuple[MethodCode, ...] = Field((), exclude_if=operator.not_)  # of other packages
    sends: bool = Field(False, exclude_if=operator.not_)  # clients start from another model than is kept
    sealed_metrics: bool = True  # each line of metrics.jsonl carries a check; not so in format 1
    partial: bool = False  # an import of single checkpoints: the others are elsewhere
    clients_deleted: bool = False  # by `runs delete --clients`, after the last round
    added: Added | None = None  # of a run that another program trained
    diverged: Positive | None = None  # the round that left loss or weights not finite: the last
    extended: tuple[Positive, ...] = ()  # the numbers of rounds that it was to have before --resume --rounds

    def states(self, setting: str) -> bool:
        """Say whether the value of a setting is known; of a run that was added not all are."""
        return self.added is None or setting in self.added.stated

    def stated(self) -> dict[str, Any]:
        """Return the settings as JSON, with null for those that are not known."""
        settings = self.settings.model_dump(mode="json")
        return {name: value if self.states(name) else None for name, value in settings.items()}


class Score(Plain):
    """Accuracy and loss on a test set: None where they were not measured, or are not finite."""

    accuracy: Finite | None = None  # in [0, 1]; None: not measured, or not finite
    loss: Finite | None = None  # None: not measured, or not finite [loss]


class Round(Score):
    """One line of ``metrics.jsonl``: the scores and costs of a round; it may have further fields."""

    round: Positive  # its number, from 1
    train_loss: Finite | None = None  # of its clients, weighted by size [loss]
    train_accuracy: Finite | None = None  # on the clients' own augmented data, under ``post_bn``
    validation: Score | None = None  # on the rows held out of training
    # of each global model, where there are several
    accuracies: dict[str, Finite | None] = Field(default_factory=dict)
    domains: dict[str, Finite | None] = Field(default_factory=dict)  # accuracy by domain
    lr: Finite | None = None  # learning rate
    shifted: bool = False  # the concepts shifted before it
    clients: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)  # that took part
    # epochs, or steps, of each of them, where some are stragglers
    local_work: list[Positive] = Field(default_factory=list)
    rows: RowsSpec | None = None  # of its clients, where every round's are new
    bytes_down: NonNegative = 0  # sent to them [bytes]
    bytes_up: NonNegative = 0  # sent by them [bytes]
    gradients: NonNegative = 0  # of the task loss that they computed [mini-batches]
    diagnostics: Diagnostics | None = None  # of updates and local training; None in older runs
    workers: Positive = 1  # processes that trained
    # of each worker so far [bytes]
    peak_memory_bytes: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    seconds: NonNegative = 0.0  # wall time [s]
    seconds_in: dict[str, NonNegative] = Field(default_factory=dict)  # by phase; none in older runs [s]

    @property
    def deciding(self) -> float | None:
        """The accuracy that decides which round is best: on rows held out, where there are any."""
        return (self.validation or self).accuracy


class CheckpointInfo(Record):
    """A checkpoint: which weights these are, and everything needed to rebuild their network and data."""

    format: Literal["fedscope/checkpoint/2"] = "fedscope/checkpoint/2"  # name and version of this format
    run: Name  # its name
    kind: Literal["global", "client"]  # the server's model, or a client's
    round: Annotated[int, Field(ge=0)]  # rounds completed when the weights were taken
    client: int | None = None  # its number; None: a global model
    # which global model: as in Settings.eval_model, or what clients started from where that is another
    average: Literal["cld", "sel", "all", "sent"] = "cld"
    samples: Positive | None  # n_k of a client; all training samples for the global model; None: unknown
    metrics: dict[str, Finite | None] = {}  # of its round; null where not finite
    settings: Settings  # all options of the training
    model: ModelSpec  # the network
    data: DataSpec  # the data set
    versions: dict[str, str]  # of fedscope and the packages that trained
    labels: tuple[int, ...] = Field((), exclude_if=operator.not_)  # of the classes, under concept shift
    rows: str = Field("", exclude_if=operator.not_)  # RowsSpec.sha256 of what the clients held; "": unknown


def difference(manifest: Manifest, info: CheckpointInfo) -> str | None:
    """Return the section in which a checkpoint differs from its run, if any; runs may have been extended."""
    lengths = (*manifest.extended, manifest.settings.rounds)
    if info.settings not in [manifest.settings.model_copy(update={"rounds": n}) for n in lengths]:
        return "settings"
    if manifest.rows and info.rows != manifest.rows.sha256:
        return "rows"
    return next((s for s in ("model", "data") if _unsourced(info, s) != _unsourced(manifest, s)), None)


def _unsourced(record: Manifest | CheckpointInfo, section: str) -> object:
    """Return a section without the hash of its code, which may change while a run is continued."""
    return getattr(record, section).model_copy(update={"source": ""})


def parse(kind: type[R], data: object, what: str) -> R:
    """Validate ``data`` as a record; ``what`` names its origin in the error, ``OPTION`` the command line.

    Raises:
        UserError: the data is of another format, or a field is missing or out of range.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        if what == OPTION:
            raise UserError(refusal(error, kind.model_json_schema(), flags=True)) from error
        raise UserError(f"{what}: {refusal(error, kind.model_json_schema())}") from error
