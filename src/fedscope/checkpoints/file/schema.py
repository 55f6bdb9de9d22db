"""The descriptions of a run, a round and a checkpoint: plain, versioned data, validated on reading.

They name models, data sets and methods by their catalogue names only, so that a checkpoint can be described,
listed and verified without building any of them.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedscope.checkpoints.file.fields import Finite, Moment, Name, NonNegative, Positive, StrictModel, later
from fedscope.checkpoints.file.round_diagnostics import Diagnostics
from fedscope.checkpoints.file.settings import Settings
from fedscope.choices import Shortcut, Told
from fedscope.lora import LoRA
from fedscope.own import SHOWN, is_own
from fedscope.validation import Plain

MOST_ROWS = 1 << 26  # that the clients of a run hold together: 256 MiB


class ModelSpec(StrictModel):
    """A network: logits over ``classes`` from images of ``channels``; or only its name.

    The fields but ``source`` are the arguments of ``models.catalogue.build``; those a record lacks describe a
    plain network. With ``lora`` the checkpoint holds adapters alone, and ``source`` is the hash of the base.
    """

    name: str  # of the catalogue, MODULE:FACTORY, or hf:NAME of a pretrained network
    classes: Positive | None = None  # None: a network of the user's own, to be named at every use
    channels: Positive | None = None  # of the images; None as ``classes``
    head: bool = False  # MOON's projection before the classifier
    shortcut: Shortcut | None = None  # where the network was published with both; None: its default
    keep: Annotated[float, Field(gt=0, le=1)] = 1.0  # stochastic depth: of the last block, in eval mode too
    schedule: Literal["code", "paper"] = "code"  # of stochastic depth over the blocks
    # SHA-256 of the file of one that is MODULE:FACTORY, or of the content of a pretrained one
    source: str = later("")
    lora: LoRA | None = later(None)  # adapters of a pretrained network

    @property
    def arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name != "source"}

    @property
    def own(self) -> bool:
        return is_own(self.name)


class DataSpec(StrictModel):
    """A data set, its augmentation pipeline, and the SHA-256 of its content; or only its name."""

    name: str  # of the catalogue, or MODULE:FACTORY
    augmentation: str = "none"  # the pipeline that trained on it
    fingerprint: str = ""  # SHA-256 of the content; empty: not known
    train_samples: Positive | None = None  # in the training split; None: not known [samples]
    test_samples: Positive | None = None  # in the test split; None: not known [samples]
    source: str = later("")  # SHA-256 of the file of data that is MODULE:FACTORY
    loss_source: str = later("")  # that of the file of the loss, where it is not cross-entropy


class PresetUse(StrictModel):
    """The preset that a run started from, what the user changed, and which of its values no source gives."""

    name: str  # as ``fedscope presets list`` has it
    overridden: tuple[str, ...] = ()  # settings and options
    provisional: dict[str, str] = Field(
        default_factory=dict
    )  # setting or option → why its value is only a proposal


class Added(StrictModel):
    """The origin of a run that another program trained, and which of its settings are known."""

    source: str  # file, folder or program
    stated: tuple[
        str, ...
    ] = ()  # the settings that are known; the others have their defaults, which mean nothing
    notes: tuple[str, ...] = ()  # what was renamed or left out


class RowsSpec(StrictModel):
    """The rows of the training set that clients hold: how many each, and a hash of counts and rows."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of counts and rows
    counts: tuple[Annotated[int, Field(ge=0)], ...]  # of each client [samples]
    validation: Annotated[int, Field(ge=0)] = 0  # held out of all clients' rows [samples]

    @model_validator(mode="after")
    def _fit_memory(self) -> "RowsSpec":
        if sum(self.counts) + self.validation > MOST_ROWS:
            raise ValueError(f"the clients hold more than {MOST_ROWS} rows")
        return self


class MethodCode(StrictModel):
    """Another package's method, and a hash of the package's source files."""

    method: str  # its name
    package: str = ""  # that brings it
    version: str = ""  # of the package
    source: str = ""  # SHA-256; "" where there are no files

    @property
    def text(self) -> str:
        return f"{self.method} of {self.package} {self.version}, {self.source[:SHOWN] or 'no source files'}"


class Manifest(StrictModel):
    """A run, as written when it starts."""

    format: Literal["fedscope/run/2"] = "fedscope/run/2"  # name and version of this format
    name: Name  # of the run
    created: Moment  # when it started, UTC
    settings: Settings  # all options of the training
    model: ModelSpec  # the network
    data: DataSpec  # the data set
    versions: dict[str, str]  # of fedscope and the packages that trained
    # None of an added run, and where every round's clients are new: see Round.rows
    rows: RowsSpec | None = later(None)
    preset: PresetUse | None = None  # that it started from
    methods: tuple[MethodCode, ...] = later(())  # of other packages
    sends: bool = later(False)  # clients start from another model than is kept
    remembers: bool = later(False)  # clients or server keep vectors between two rounds
    sealed_metrics: Literal[True] = True  # each line of metrics.jsonl carries a check
    partial: bool = False  # not every file must be here, as of an added run
    clients_deleted: bool = False  # by `runs delete --clients`, after the last round
    steps_deleted: bool = later(False)  # by `runs delete --local-steps`
    # global models, by `runs delete --checkpoint`: file → SHA-256 of its weights, whose results stay
    checkpoints_deleted: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = later({})
    added: Added | None = None  # of a run that another program trained
    diverged: Positive | None = None  # the round that left loss or weights not finite: the last
    extended: tuple[Positive, ...] = ()  # the numbers of rounds that it was to have before --resume --rounds

    @property
    def finished(self) -> bool:
        """Whether the final model was there and was deleted; of a run that has it the file says so."""
        return "final.pt" in self.checkpoints_deleted

    def states(self, setting: str) -> bool:
        """Say whether the value of a setting is known; of a run that was added not all are."""
        return self.added is None or setting in self.added.stated

    def stated(self) -> dict[str, Any]:
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
    # steps that each of them made, where models inside their training are kept
    local_steps: list[Positive] = later([])
    rows: RowsSpec | None = None  # of its clients, where every round's are new
    bytes_down: NonNegative = 0  # sent to them [bytes]
    bytes_up: NonNegative = 0  # sent by them [bytes]
    gradients: NonNegative = 0  # of the task loss that they computed [mini-batches]
    diagnostics: Diagnostics | None = None  # of updates and local training; None of an added run
    workers: Positive = 1  # processes that trained
    # of each worker so far [bytes]
    peak_memory_bytes: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    seconds: NonNegative = 0.0  # wall time [s]
    seconds_in: dict[str, NonNegative] = Field(default_factory=dict)  # by phase; none of an added run [s]

    @property
    def evaluated(self) -> bool:
        return self.accuracy is not None or self.loss is not None

    @property
    def deciding(self) -> float | None:
        """The score that decides the best round: accuracy or negative loss, on held-out rows if any."""
        score = self.validation or self
        return score.accuracy if score.accuracy is not None or score.loss is None else -score.loss


class CheckpointInfo(StrictModel):
    """A checkpoint: which weights these are, and everything needed to rebuild their network and data."""

    format: Literal["fedscope/checkpoint/2"] = "fedscope/checkpoint/2"  # name and version of this format
    run: Name  # its name
    kind: Literal["global", "client"]  # the server's model, or a client's
    round: Annotated[int, Field(ge=0)]  # rounds completed when the weights were taken
    client: int | None = None  # its number; None: a global model
    step: Positive | None = later(None)  # local steps done; None: a whole round's
    # which global model: as in Settings.eval_model, or what clients started from where that is another
    average: Literal["cld", "sel", "all", "sent"] = "cld"
    samples: Positive | None  # n_k of a client; all training samples for the global model; None: unknown
    metrics: dict[str, Finite | None] = Field(default_factory=dict)  # of its round; null where not finite
    settings: Settings  # all options of the training
    model: ModelSpec  # the network
    data: DataSpec  # the data set
    versions: dict[str, str]  # of fedscope and the packages that trained
    labels: tuple[int, ...] = later(())  # of the classes, under concept shift
    told: Told = later("run")  # how it was told that the weights are the client's
    origin: str = later("")  # file, node, user or row that they come from; "" of a run that fedscope trained
    rows: str = later("")  # RowsSpec.sha256 of what the clients held; "": unknown


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
