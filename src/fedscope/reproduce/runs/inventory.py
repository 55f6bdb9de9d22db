"""The registry's runs for cells: those with a cell's settings, and their checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.reproduce.recipes.measures import Measure, Model
from fedscope.reproduce.recipes.run_cells import RunCell, identity
from fedscope.reproduce.runs.measurements import cached_result, deleted, run_of


@dataclass(frozen=True)
class RunEntry:
    """A run of the registry, finished or not."""

    run: RunFolder
    manifest: Manifest

    @cached_property
    def metrics(self) -> list[Round]:
        return self.run.metrics()

    @property
    def finished(self) -> bool:
        return self.run.final.exists() or self.manifest.finished

    @property
    def done(self) -> int:
        """The number of rounds before the newest checkpoint."""
        if self.finished:
            return self.manifest.settings.rounds
        return len(self.metrics) if self.run.last.exists() else 0

    def has(self, round: int) -> bool:
        """Say whether ``round`` needs no more training; the last round has its final model then."""
        return self.done >= round and (round < self.manifest.settings.rounds or self.finished)

    def finite(self, round: int) -> bool:
        return self.manifest.diverged is None or round < self.manifest.diverged

    def place(self, model: Model, round: int) -> Path | None:
        """Return where a global model after ``round`` rounds is kept, if it is; None: nowhere."""
        now, chosen, kept = round == self.done, self.manifest.settings.eval_model, self.run.after_round(round)
        newest = self.run.newest
        if model == "best":
            path = self.run.best if now else None
        elif model == "server" or chosen == "cld":
            path = kept if kept.exists() or not now else newest  # a run in training replaces its newest
        else:
            path = self.run.average(chosen, None if now else round)
        return path


@dataclass(frozen=True)
class Match:
    """The run that fills a cell, after ``round`` of its rounds."""

    entry: RunEntry
    round: int

    def path(self, cell: RunCell, measure: Measure) -> Path | None:
        """Return the checkpoint that a measure is of, if it is there, or was and its result is."""
        if measure.uploads and self.round != self.entry.done:
            return None  # the uploads are of later rounds
        path = self.entry.place(measure.model or cell.model, self.round)
        return path if path and (path.exists() or _outlived(path, measure)) else None


def _outlived(path: Path, measure: Measure) -> bool:
    registry = run_of(path).folder.parent
    return deleted(path) is not None and cached_result(registry, path, measure) is not None


@dataclass
class RunInventory:
    """The runs of a registry, by experiment."""

    registry: RunRegistry
    unreadable: list[str] = field(default_factory=list)

    @cached_property
    def runs(self) -> dict[str, list[RunEntry]]:
        """Every run by the identity of its experiment; one that cannot be read is left out and named."""
        found: dict[str, list[RunEntry]] = {}
        for run in self.registry.folders():
            try:
                manifest = run.manifest()
            except UserError:
                self.unreadable.append(run.name)
                continue
            if manifest.added is None:
                found.setdefault(identity(manifest.settings), []).append(RunEntry(run, manifest))
        return found

    def find(self, cell: RunCell, *, partial: bool = False) -> Match | None:
        """Return the run that fills a cell: with all rounds, and with every checkpoint that is measured.

        With ``partial`` an unfinished run counts too, with its rounds so far.
        """
        wanted = cell.settings.rounds
        sound = [entry for entry in self.runs.get(cell.identity, []) if entry.finite(wanted)]
        runs = sorted(sound, key=lambda entry: _distance(entry, cell))
        for entry in runs:
            found = Match(entry, wanted)
            if entry.has(wanted) and all(found.path(cell, m) for m in cell.measures.values()):
                return found
        started = [entry for entry in runs if entry.done > 0 and entry.finite(entry.done)] if partial else []
        if not started:
            return None
        best = max(started, key=lambda entry: min(entry.done, wanted))
        return Match(best, min(best.done, wanted))

    def unfinished(self, identity: str, rounds: int) -> RunEntry | None:
        every = (one for one in self.runs.get(identity, []) if one.manifest.settings.rounds >= rounds)
        begun = (one for one in every if not (one.manifest.diverged or one.finished))
        return next(begun, None)

    def diverged(self, cell: RunCell) -> RunEntry | None:
        every = self.runs.get(cell.identity, [])
        return next((one for one in every if not one.finite(cell.settings.rounds)), None)


def _distance(entry: RunEntry, cell: RunCell) -> tuple[bool, int, str]:
    """Order runs of one experiment: the cell's own precision and length first."""
    settings = entry.manifest.settings
    differs = settings.precision != cell.settings.precision
    return differs, abs(settings.rounds - cell.settings.rounds), entry.run.name


def uploads_to_keep(cells: Sequence[RunCell]) -> str:
    """Return the setting ``save_clients`` that these cells need."""
    return "last" if any(cell.needs_uploads for cell in cells) else "none"
