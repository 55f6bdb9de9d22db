"""A run as ``fedscope runs show --json`` prints it: its manifest and its metrics by round."""

import math

from pydantic import Field

from fedscope.records.numbers import Number, Several
from fedscope.records.plain import Plain


class RunSettings(Plain):
    """What readers use of a run's settings; None: not stated, or left out by a run that was added."""

    method: str | None = None
    partition: str | None = None
    alpha: float | None = None
    clients: int | None = None
    participation: float | None = None
    rounds: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    eval_model: str | None = None
    evaluate_on: str | None = None
    target: float | None = None
    seed: int | None = None


class Added(Plain):
    """What is known of a run that was trained elsewhere."""

    stated: Several[str] = ()  # the names of the settings that are known


class Model(Plain):
    """The network."""

    name: str


class Data(Plain):
    """The data set."""

    name: str
    fingerprint: str | None = None


class RunManifest(Plain):
    """What a run is."""

    format: str
    name: str
    created: str
    settings: RunSettings
    model: Model
    data: Data
    versions: dict[str, str] = Field(default_factory=dict)
    added: Added | None = None
    diverged: int | None = None  # the round that left loss or weights not finite


class RoundMetrics(Plain):
    """What a round reached; NaN where it was not evaluated or was not finite."""

    round: int
    accuracy: Number = math.nan
    loss: Number = math.nan


class RunRecord(Plain):
    """A run, its metrics, and the hashes of its checkpoints by their files' names."""

    manifest: RunManifest
    metrics: Several[RoundMetrics]
    checkpoints: dict[str, str] = Field(default_factory=dict)
    asked: Several[str] = ()  # the paths of the checkpoints that were asked for
    registry_option: str = ""  # what names the registry on the command line

    @property
    def stated(self) -> RunSettings:
        """The settings, without those that a run from elsewhere does not say."""
        settings, added = self.manifest.settings, self.manifest.added
        if added is None:
            return settings
        return RunSettings.read({k: v for k, v in settings.to_json().items() if k in added.stated})
