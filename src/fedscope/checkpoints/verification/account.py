"""A run's own account of itself, and a checkpoint of it that was read whole: what verification compares."""

from dataclasses import dataclass

from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, Round, RowsSpec
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.best import best

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Account:
    """The manifest of a run, and its record of every round."""

    manifest: Manifest
    rounds: tuple[Round, ...]
    ended: bool  # finished or diverged: no file is ahead of the metrics

    @property
    def settings(self) -> Settings:
        return self.manifest.settings

    @property
    def trained(self) -> bool:
        """Whether fedscope trained the run; another program follows rules of its own."""
        return self.manifest.added is None

    @property
    def done(self) -> int:
        return len(self.rounds)

    @property
    def reach(self) -> int:
        """The newest round that a file may be of: most are written before the line of their round."""
        return self.done if self.ended else self.done + 1

    @property
    def whole(self) -> bool:
        """Whether no checkpoint of the run is elsewhere."""
        return not self.manifest.partial

    def rows(self, round: int) -> RowsSpec | None:
        record = self.record(round)
        return self.manifest.rows or (record.rows if record else None)

    @property
    def last_rounds(self) -> dict[int, int]:
        return {client: record.round for record in self.rounds for client in record.clients}

    @property
    def best(self) -> int:
        """The number of the best round; 0 where none has an accuracy, or a loss that takes its place."""
        top = best(self.rounds)
        decided = top and (self.settings.loss or (top.validation or top).accuracy is not None)
        return top.round if top and decided else 0

    def record(self, round: int) -> Round | None:
        return self.rounds[round - 1] if 1 <= round <= self.done else None


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A checkpoint that was read whole."""

    name: str
    info: CheckpointInfo
    sha256: str
