"""The registry's runs for cells, with their checkpoints, and the runs that are missing."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.schema import Manifest, PresetUse, Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.federated.setup.paper_presets import preset
from fedscope.federated.setup.resolved_settings import settled
from fedscope.reproduce.recipes.measures import Measure, Model
from fedscope.reproduce.recipes.run_cells import RunCell, identity
from fedscope.reproduce.runs.computations import Log
from fedscope.reproduce.runs.measurements import cached_result, deleted, run_of
from fedscope.workflows.progress import Progress, Reporter
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import RunPlan, TrainRequest

UNPRINTED = ("options", "device", "threads")


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


@dataclass(frozen=True)
class Training:
    """A run to train, or to continue."""

    name: str
    settings: Settings
    use: PresetUse
    until: int  # the last round that a cell needs
    resume: bool
    cells: tuple[RunCell, ...]

    def command(self, registry: Path) -> str:
        base, given, _ = preset(self.use.name).resolve({"method": self.settings.method}, {})
        plain = settled(parse(Settings, base, "preset"), given)
        before, now = plain.model_dump(mode="json"), self.settings.model_dump(mode="json")
        words = [f"fedscope train --preset {self.use.name} --method {self.settings.method}"]
        words += [
            _flag(key, value)
            for key, value in now.items()
            if key not in UNPRINTED and value not in (before[key], None)
        ]
        changed = self.settings.options.items() - plain.options.items()
        words += [f"--set {name}={value}" for name, value in sorted(changed)]
        words += [f"--threads 1 --registry {registry} --name {self.name}", *["--resume"] * self.resume]
        return " ".join(words)


def _flag(setting: str, value: object) -> str:
    name = setting.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{name}"
    return f"--{name} {value}"


def missing(cells: Iterable[RunCell], inventory: RunInventory, *, bf16: bool = True) -> list[Training]:
    """Return the runs to train for these cells: each experiment once, for the rounds of its longest cell.

    A run that diverged is not trained again. Without ``bf16``, on a machine that only emulates it, new runs
    are trained in fp32.
    """
    groups: dict[str, list[RunCell]] = {}
    for cell in cells:
        if inventory.find(cell) is None and not inventory.diverged(cell):
            groups.setdefault(cell.identity, []).append(cell)
    return [_training(group, inventory, bf16=bf16) for group in groups.values()]


def _training(cells: list[RunCell], inventory: RunInventory, *, bf16: bool) -> Training:
    longest = max(cells, key=lambda cell: cell.settings.rounds)
    rounds = {cell.settings.rounds for cell in cells}
    every = math.gcd(*rounds - {max(rounds)})  # the last one's model is kept anyway; 0 where it is the only
    begun = inventory.unfinished(longest.identity, max(rounds))
    if begun:
        return Training(begun.run.name, begun.manifest.settings, longest.use, max(rounds), True, tuple(cells))
    changes = {
        "keep_every": every,
        "save_clients": uploads_to_keep(cells),
        **({} if bf16 else {"precision": "fp32"}),
    }
    settings = longest.settings.model_copy(update=changes)
    return Training(_name(longest, settings), settings, longest.use, max(rounds), False, tuple(cells))


def _name(cell: RunCell, settings: Settings) -> str:
    text = settings.model_copy(update={"device": "cpu", "threads": 1}).model_dump_json()
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cell.use.name.replace('/', '-')}-{settings.method}-s{settings.seed}-{digest}"


def train_job(
    job: Training, registry: Path, data_dir: Path | None, device: str, threads: int, say: Log
) -> None:
    settings = job.settings
    if not job.resume:
        settings = settings.model_copy(update={"device": device, "threads": threads})
    options = {name: str(value) for name, value in settings.options.items()}
    request = TrainRequest(registry, name=job.name, resume=job.resume, data_dir=data_dir)
    plan = RunPlan(request, settings, options, job.use, until=job.until)
    try:
        train_run(plan, Reporter(rounds=partial(_each_round, say)))
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # its message is about the run alone


@contextmanager
def _each_round(say: Log, title: str) -> Iterator[Progress]:
    yield lambda done, until, text: say(f"{title} {done}/{until}, {text}")
