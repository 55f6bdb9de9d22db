"""A run as a report shows it: what it is, what its rounds reached, and which checkpoints it has."""

from functools import cached_property

from pydantic import Field

from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.number_types import Several
from fedscope.records.run_curves import CurvatureEntry
from fedscope.validation import Plain


class Stated(Plain):
    """The settings that a report shows; None where a run that was added does not say."""

    method: str | None = None
    partition: str | None = None
    alpha: float | None = None
    shards: int | None = None
    classes_per_client: int | None = None
    clients: int | None = None
    participation: float | None = None
    rounds: int | None = None
    epochs: int | None = None
    local_steps: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    stragglers: float | None = None
    seed: int | None = None
    eval_model: str | None = None
    target: float | None = None


class RunRecord(Plain):
    """What ``fedscope runs show --json`` prints of a run, and what a report adds to it."""

    manifest: Manifest  # the run as written when it started
    metrics: Several[Round] = ()  # a round each
    checkpoints: dict[str, str] = Field(default_factory=dict)  # the files' hashes by name
    asked: Several[str] = ()  # paths of the checkpoints that the report was asked for
    curvature: Several[CurvatureEntry] = ()  # of the models that it kept, as far as the registry has it
    clients: Several[ClientsRecord] = ()  # of the rounds that it kept, as far as the registry has them
    registry_option: str | None = None  # what names its registry on the command line

    @property
    def name(self) -> str:
        """The run's name."""
        return self.manifest.name

    @cached_property
    def stated(self) -> Stated:
        """The settings that the run states."""
        return Stated.read(self.manifest.stated())
