"""The plan of a build: runs to train, results to measure, and the time that they take."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import torch

from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.process import has_bfloat16
from fedscope.reproduce.artefacts.filled import FilledCell
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.run_cells import Choices, RunCell, cells
from fedscope.reproduce.recipes.spec import Recipe, recipe
from fedscope.reproduce.runs import measurements as measuring
from fedscope.reproduce.runs.computations import Computation
from fedscope.reproduce.runs.estimate import NOTHING, CoreSeconds, MachineSpeed
from fedscope.reproduce.runs.inventory import RunEntry, RunInventory, Training, missing, train_job
from fedscope.reproduce.runs.measurements import key, why_not_measurable


@dataclass(frozen=True)
class BuildSettings:
    """The folders of a build, and how it computes."""

    registry: Path
    out: Path
    data_dir: Path | None = None
    device: str = "cpu"
    threads: int = 1
    workers: int = 1


@dataclass(frozen=True)
class RecipeState:
    """A recipe, and how many of its cells have a run."""

    recipe: str
    scale: str
    cells: int
    with_a_run: int
    why: tuple[str, ...]


@dataclass(frozen=True)
class ToTrain:
    """A run that is missing."""

    run: str
    resume: bool
    rounds: int
    seconds: float  # of one core
    basis: str
    command: str


@dataclass(frozen=True)
class ToMeasure:
    """A missing result of a run in the registry."""

    run: str
    checkpoint: str
    what: str


@dataclass(frozen=True)
class Outline:
    """The work of a build."""

    recipes: tuple[RecipeState, ...]
    train: tuple[ToTrain, ...]
    measure: tuple[ToMeasure, ...]
    diverged: dict[str, int]  # the round of each run that leaves a cell empty
    faults: dict[str, str]  # jobs that cannot be done, and why
    seconds: float  # of one core
    basis: str


class Plan:
    """The runs and results that recipes need and the registry lacks, as it was when the plan was made."""

    def __init__(
        self,
        recipes: Sequence[Recipe],
        choices: Choices,
        place: BuildSettings,
        *,
        partial: bool = False,
        clock: MachineSpeed | None = None,
    ):
        self.recipes, self.choices, self.place, self.partial = tuple(recipes), choices, place, partial
        self.clock = clock or MachineSpeed(RunInventory(RunRegistry(place.registry)))

    @property
    def inventory(self) -> RunInventory:
        return self.clock.inventory

    def refreshed(self, *, partial: bool) -> Self:
        return type(self)(self.recipes, self.choices, self.place, partial=partial)

    @cached_property
    def cells(self) -> dict[str, list[RunCell]]:
        return {recipe.name: cells(recipe, self.choices) for recipe in self.recipes}

    @cached_property
    def trainings(self) -> list[Training]:
        """The runs that are missing, the longest first."""
        if self.partial:
            return []
        every = [cell for own in self.cells.values() for cell in own]
        found = missing(every, self.inventory, bf16=has_bfloat16(torch.device(self.place.device)))
        return sorted(found, key=lambda job: -self._time(job).seconds)

    @cached_property
    def filled(self) -> dict[str, list[FilledCell]]:
        return {
            name: [
                FilledCell(cell, found, self.place.registry)
                for cell in own
                if (found := self.inventory.find(cell, partial=self.partial))
            ]
            for name, own in self.cells.items()
        }

    @cached_property
    def elsewhere(self) -> dict[str, list[FilledCell]]:
        """The cells of another recipe that tell the spread between trainings, as far as they have a run."""
        found: dict[str, list[FilledCell]] = {}
        for one in self.recipes:
            name, column = one.spread_of or ("", "")
            own = cells(recipe(name, one.scale.name)) if name else []
            found[one.name] = [
                FilledCell(cell, match, self.place.registry)
                for cell in own
                if cell.column == column and (match := self.inventory.find(cell))
            ]
        return found

    @cached_property
    def diverged(self) -> dict[str, list[tuple[RunCell, RunEntry]]]:
        """The cells that stay empty because their run diverged, by recipe."""
        return {
            name: [
                (cell, entry)
                for cell in own
                if not self.inventory.find(cell) and (entry := self.inventory.diverged(cell))
            ]
            for name, own in self.cells.items()
        }

    @cached_property
    def _lacking(self) -> dict[str, tuple[Path, Measure]]:
        found: dict[str, tuple[Path, Measure]] = {}
        for name in self.cells:
            for one in self.filled[name]:
                for measure, path in one.paths.items():
                    if measure not in one.records:
                        wanted = one.measures[measure]
                        found[key(path, wanted)] = (path, wanted)
        return found

    @cached_property
    def measures(self) -> dict[str, tuple[Path, Measure]]:
        """The missing results that can be measured, by their key."""
        return {
            name: (path, wanted)
            for name, (path, wanted) in self._lacking.items()
            if not why_not_measurable(wanted, path)
        }

    @property
    def faults(self) -> dict[str, str]:
        """Why a missing result cannot be measured, by the title of its job."""
        return {
            _title(path, wanted): why
            for path, wanted in self._lacking.values()
            if (why := why_not_measurable(wanted, path))
        }

    def divergences(self) -> dict[str, int]:
        """Return the round in which each run diverged that leaves a cell empty."""
        entries = [entry for own in self.diverged.values() for _, entry in own]
        return {one.run.name: one.manifest.diverged for one in entries if one.manifest.diverged}

    @property
    def optional(self) -> set[str]:
        """The titles of jobs without whose result an artefact is whole: answers that pair accuracies."""
        return {_title(path, wanted) for path, wanted in self.measures.values() if wanted.kind == "outcomes"}

    def training_jobs(self) -> list[Computation]:
        place = self.place
        where = (place.registry, place.data_dir, place.device, place.threads)
        return [Computation(f"train {one.name}", train_job, (one, *where)) for one in self.trainings]

    def measuring_jobs(self) -> list[Computation]:
        place = self.place
        where = (place.registry, place.data_dir, place.device)
        return [
            Computation(_title(path, wanted), measuring.compute, (path, wanted, *where))
            for path, wanted in self.measures.values()
        ]

    def estimate(self) -> CoreSeconds:
        training = [self._time(job) for job in self.trainings]
        later = [
            self.clock.measuring(cell.settings, wanted)
            for job in self.trainings for cell in job.cells for wanted in cell.measures.values()
        ]  # fmt: skip
        now = [
            self.clock.measuring(one.cell.settings, one.measures[measure])
            for name in self.cells for one in self.filled[name] for measure, path in one.paths.items()
            if measure not in one.records and key(path, one.measures[measure]) in self.measures
        ]  # fmt: skip
        return sum([*training, *later, *now], NOTHING)

    def _time(self, job: Training) -> CoreSeconds:
        left = job.settings.model_copy(update={"rounds": job.until})
        if not job.resume:
            return self.clock.training(left)
        entries = (entry for own in self.inventory.runs.values() for entry in own)
        return self.clock.training(left, next(one.done for one in entries if one.run.name == job.name))

    def outline(self) -> Outline:
        estimate = self.estimate()
        timed = [(job, self._time(job)) for job in self.trainings]
        return Outline(
            tuple(
                RecipeState(
                    recipe.name, recipe.scale.name, len(self.cells[recipe.name]),
                    len(self.filled[recipe.name]), tuple(recipe.scale.why),
                )
                for recipe in self.recipes
            ),
            tuple(
                ToTrain(
                    job.name, job.resume, job.until, time.seconds, time.basis,
                    job.command(self.place.registry),
                )
                for job, time in timed
            ),
            tuple(
                ToMeasure(measuring.run_of(path).name, path.name, wanted.summary())
                for path, wanted in self.measures.values()
            ),
            self.divergences(), self.faults, estimate.seconds, estimate.basis,
        )  # fmt: skip


def _title(path: Path, wanted: Measure) -> str:
    return f"measure {measuring.run_of(path).name}@{path.stem}, {wanted.summary()}"
