"""The missing runs, one for all cells that it can fill, and how each is trained."""

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedscope.checkpoints.file.fields import parse
from fedscope.checkpoints.file.schema import PresetUse
from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.setup.paper_presets import preset
from fedscope.federated.setup.resolved_settings import settled
from fedscope.reproduce.recipes.run_cells import RunCell
from fedscope.reproduce.runs.computations import Log
from fedscope.reproduce.runs.inventory import RunInventory, uploads_to_keep
from fedscope.workflows.progress import Progress, Reporter
from fedscope.workflows.train.one_run import train_run
from fedscope.workflows.train.train_request import RunPlan, TrainRequest

UNPRINTED = ("options", "device", "threads")


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
