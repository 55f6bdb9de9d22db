"""From recipes to artefacts: what is needed, what the registry has of it, and the rest computed.

Nothing is computed that the registry has, and everything that is computed is kept there, so that a build that
was interrupted anywhere goes on where it stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from fedscope.checkpoints.registry.registry import Registry
from fedscope.process import has_bfloat16
from fedscope.records.commands import registry_option
from fedscope.records.entries import Record
from fedscope.reproduce.artefacts.artefact import FilledCell, assemble
from fedscope.reproduce.gallery.gallery import why_not_overwrite, write
from fedscope.reproduce.recipes.cells import Cell, Choices, cells
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.runs import measure as measuring
from fedscope.reproduce.runs.estimate import NOTHING, Clock, Estimate, total
from fedscope.reproduce.runs.inventory import RunEntry, RunInventory
from fedscope.reproduce.runs.jobs import Job, Log, run_all
from fedscope.reproduce.runs.measure import key, why_not_measurable
from fedscope.reproduce.runs.train import Training, missing, train_job


@dataclass(frozen=True)
class Place:
    """Where things are, and how they are computed."""

    registry: Path
    out: Path
    data_dir: Path | None = None
    device: str = "cpu"
    threads: int = 1
    workers: int = 1


@dataclass(frozen=True)
class Plan:
    """What recipes need beyond what the registry has."""

    recipes: tuple[Recipe, ...]
    choices: Choices
    place: Place
    partial: bool = False

    @cached_property
    def holdings(self) -> RunInventory:
        """The registry as it is now."""
        return RunInventory(Registry(self.place.registry))

    @cached_property
    def cells(self) -> dict[str, list[Cell]]:
        """Every recipe's cells."""
        return {recipe.name: cells(recipe, self.choices) for recipe in self.recipes}

    @cached_property
    def trainings(self) -> list[Training]:
        """The runs that are missing, the longest first."""
        if self.partial:
            return []
        every = [cell for own in self.cells.values() for cell in own]
        found = missing(every, self.holdings, bf16=has_bfloat16(torch.device(self.place.device)))
        return sorted(found, key=lambda job: -self._time(job).seconds)

    @cached_property
    def clock(self) -> Clock:
        """What the registry's runs say of this machine's speed."""
        return Clock(self.holdings)

    @cached_property
    def filled(self) -> dict[str, list[FilledCell]]:
        """The cells that have a run, by recipe."""
        return {
            name: [
                FilledCell(cell, found, self.place.registry)
                for cell in own
                if (found := self.holdings.find(cell, partial=self.partial))
            ]
            for name, own in self.cells.items()
        }

    @cached_property
    def diverged(self) -> dict[str, list[tuple[Cell, RunEntry]]]:
        """The cells that stay empty, since their run diverged, by recipe."""
        return {
            name: [
                (cell, held)
                for cell in own
                if not self.holdings.find(cell) and (held := self.holdings.diverged(cell))
            ]
            for name, own in self.cells.items()
        }

    @cached_property
    def _lacking(self) -> dict[str, tuple[Path, Measure]]:
        """The results that are missing of runs that are there, by their key."""
        found: dict[str, tuple[Path, Measure]] = {}
        for name in self.cells:
            for one in self.filled[name]:
                for measure, path in one.paths.items():
                    if measure not in one.records:
                        wanted = one.cell.measures[measure]
                        found[key(path, wanted)] = (path, wanted)
        return found

    @cached_property
    def measures(self) -> dict[str, tuple[Path, Measure]]:
        """Those of them that can be measured."""
        return {
            name: (path, wanted)
            for name, (path, wanted) in self._lacking.items()
            if not why_not_measurable(wanted, path)
        }

    @property
    def faults(self) -> dict[str, str]:
        """Why the others cannot, by what would be done."""
        return {
            _title(path, wanted): why
            for path, wanted in self._lacking.values()
            if (why := why_not_measurable(wanted, path))
        }

    def divergences(self) -> dict[str, int]:
        """Return the round in which each run diverged that leaves a cell empty."""
        held = [held for own in self.diverged.values() for _, held in own]
        return {one.run.name: one.manifest.diverged for one in held if one.manifest.diverged}

    def training_jobs(self) -> list[Job]:
        """Return the work of the missing runs."""
        place = self.place
        where = (place.registry, place.data_dir, place.device, place.threads)
        return [Job(f"train {one.name}", train_job, (one, *where)) for one in self.trainings]

    def measuring_jobs(self) -> list[Job]:
        """Return the work of the missing results."""
        place = self.place
        where = (place.registry, place.data_dir, place.device)
        return [
            Job(_title(path, wanted), measuring.compute, (path, wanted, *where))
            for path, wanted in self.measures.values()
        ]

    def estimate(self) -> Estimate:
        """Return the time of everything that is missing, on one core."""
        training = [self._time(job) for job in self.trainings]
        later = [
            self.clock.measuring(cell.settings, wanted)
            for job in self.trainings for cell in job.cells for wanted in cell.measures.values()
        ]  # fmt: skip
        now = [
            self.clock.measuring(one.cell.settings, one.cell.measures[measure])
            for name in self.cells for one in self.filled[name] for measure, path in one.paths.items()
            if measure not in one.records and key(path, one.cell.measures[measure]) in self.measures
        ]  # fmt: skip
        return total([*training, *later, *now]) if training or later or now else NOTHING

    def _time(self, job: Training) -> Estimate:
        """Return the time of the rounds that a run has to go."""
        left = job.settings.model_copy(update={"rounds": job.until})
        if not job.resume:
            return self.clock.training(left)
        runs = (held for own in self.holdings.runs.values() for held in own)
        return self.clock.training(left, next(held.done for held in runs if held.run.name == job.name))

    def describe(self) -> Record:
        """Return the plan as plain data."""
        estimate = self.estimate()
        there = {name: len(self.filled[name]) for name in self.cells}
        return {
            "recipes": [
                {
                    "recipe": recipe.name, "scale": recipe.scale.name, "cells": len(self.cells[recipe.name]),
                    "with_a_run": there[recipe.name], "why": list(recipe.scale.why),
                }
                for recipe in self.recipes
            ],
            "train": [
                {
                    "run": job.name, "resume": job.resume, "rounds": job.until,
                    "seconds": self._time(job).seconds,
                    "basis": self._time(job).basis,
                    "command": job.command(self.place.registry),
                }
                for job in self.trainings
            ],
            "measure": [
                {"run": path.parent.name, "checkpoint": path.name, "what": wanted.summary()}
                for path, wanted in self.measures.values()
            ],
            "diverged": self.divergences(),
            "faults": self.faults,
            "seconds": estimate.seconds,
            "basis": estimate.basis,
        }  # fmt: skip


def build(
    recipes: Sequence[Recipe], choices: Choices, place: Place, say: Log, *, partial: bool = False
) -> tuple[list[Path], dict[str, str]]:
    """Train and measure what is missing, then write the artefacts; return the files, and what went wrong.

    Args:
        recipes: each at its scale.
        choices: what is narrowed of them.
        place: registry, gallery, and how to compute.
        say: told every step.
        partial: train nothing; runs that have not come as far stand in their cells as far as they are.
    """

    def plan(*, partial: bool) -> Plan:  # a new one sees what has come to the registry
        return Plan(tuple(recipes), choices, place, partial)

    faults = _run(plan(partial=partial).training_jobs(), place, say)
    asked, partial = partial, partial or bool(faults)
    trained = plan(partial=partial)
    faults |= _run(trained.measuring_jobs(), place, say) | trained.faults
    now, written = plan(partial=partial), []
    for run, round in now.divergences().items():
        say(f"{run} diverged in round {round}: its cells say so, and it is not trained again")
    for recipe in recipes:
        cells, filled = now.cells[recipe.name], now.filled[recipe.name]
        told = command(recipe, choices, place.registry, partial=asked)
        record = assemble(recipe, cells, filled, told, now.diverged[recipe.name])
        if why := why_not_overwrite(record, place.out):
            faults[f"writing {recipe.name}"] = why
        else:
            written += write(record, place.out)
    return written, faults


def command(recipe: Recipe, choices: Choices, registry: Path, *, partial: bool) -> str:
    """Return the command that builds an artefact; it names no folder outside the one it is given in."""
    build = f"fedscope figures build {recipe.name} --scale {recipe.scale.name}"
    words = [f"{build}{registry_option(registry)}"]
    words += [f"--seeds {','.join(map(str, choices.seeds))}"] if choices.seeds else []
    words += [f"--only {row!r}" if " " in row else f"--only {row}" for row in choices.rows or ()]
    words += [f"--rounds {choices.rounds}"] if choices.rounds else []
    return " ".join([*words, "--partial"] if partial else words)


def _title(path: Path, wanted: Measure) -> str:
    return f"measure {path.parent.name}@{path.stem}, {wanted.summary()}"


def _run(jobs: Sequence[Job], place: Place, say: Log) -> dict[str, str]:
    return run_all(jobs, workers=place.workers, threads=place.threads, device=place.device, say=say)
