"""A recipe's cell with the run that stands in it: rounds, checkpoints, and the results measured of them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.records.entries import Record
from fedscope.records.outcomes import OutcomesRecord
from fedscope.records.saved_records import Kept
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.recipes.run_cells import RunCell
from fedscope.reproduce.recipes.table_quantities import QUANTITIES, Number, from_metrics, from_record
from fedscope.reproduce.runs.inventory import Match
from fedscope.reproduce.runs.measurements import cached_result, content, key


@dataclass(frozen=True)
class FilledCell:
    """A cell with the run that fills it, and the results measured of the run."""

    cell: RunCell
    match: Match
    registry: Path

    @cached_property
    def metrics(self) -> list[Round]:
        """The rounds up to the cell's."""
        return self.match.entry.metrics[: self.match.round]

    @cached_property
    def measures(self) -> dict[str, Measure]:
        """The cell's measures, and the answers on the test samples that pair its accuracies with others'."""
        return {**self.cell.measures, **self._outcomes}

    @property
    def _outcomes(self) -> dict[str, Measure]:
        last = self.metrics[-1] if self.metrics else None
        if last is None or last.domains or self.cell.settings.evaluate_on != "test":
            return {}
        models = sorted({model for name in self.cell.quantities if (model := QUANTITIES[name].outcomes)})
        every = {f"outcomes of {model}": Measure("outcomes", model=model, split="test") for model in models}
        return {name: wanted for name, wanted in every.items() if self.match.path(self.cell, wanted)}

    @cached_property
    def paths(self) -> dict[str, Path]:
        paths = {name: self.match.path(self.cell, wanted) for name, wanted in self.measures.items()}
        return {name: path for name, path in paths.items() if path}

    @cached_property
    def records(self) -> dict[str, Kept]:
        found = {
            name: cached_result(self.registry, path, self.measures[name]) for name, path in self.paths.items()
        }
        return {name: record for name, record in found.items() if record is not None}

    def number(self, quantity: str) -> tuple[Number, Kept | None] | None:
        """Return a quantity's value, and the record it is from or is paired by."""
        measure = QUANTITIES[quantity].measure
        if measure is None:
            tested = self.match.entry.manifest.data.test_samples
            answers = self.records.get(f"outcomes of {QUANTITIES[quantity].outcomes}")
            paired = answers if isinstance(answers, OutcomesRecord) else None
            return from_metrics(quantity, self._settings(), self.metrics, tested), paired
        record = self.records.get(measure)
        return None if record is None else (from_record(quantity, record), record)

    def _settings(self) -> Settings:
        update = {"rounds": self.cell.settings.rounds, "target": self.cell.settings.target}
        return self.match.entry.manifest.settings.model_copy(update=update)

    def describe(self) -> Record:
        manifest, measures = self.match.entry.manifest, self.measures
        checkpoints = {
            name: {
                "file": path.relative_to(self.match.entry.run.folder).as_posix(),
                "sha256": content(path),
                "result": key(path, measures[name]),
            }
            for name, path in self.paths.items()
            if name in self.cell.measures or name in self.records
        }
        return {
            **self.cell.describe(),
            "run": manifest.name,
            "round": self.match.round,
            "schedule": manifest.settings.rounds,
            "accuracy": self.metrics[-1].accuracy if self.metrics else None,
            "core_seconds": sum(done.seconds * done.workers for done in self.metrics),
            "preset": self.cell.use.model_dump(mode="json"),
            "settings": manifest.settings.model_dump(mode="json"),
            "data": manifest.data.model_dump(mode="json"),
            "versions": manifest.versions,
            "checkpoints": checkpoints,
        }
