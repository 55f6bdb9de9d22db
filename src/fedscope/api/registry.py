"""The registry of runs as a collection of Python."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedscope.api.printed_results import Result
from fedscope.api.reporting import reporter
from fedscope.api.run import Run
from fedscope.api.sources import registry_folder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.figures.text.hessian_table import Table
from fedscope.workflows.progress import SILENT, Reporter


class Registry(Result):
    """The runs in a folder, oldest first: ``registry["fedavg-digits"]``, ``for run in registry``.

    A run whose files are damaged is left out of it, with a warning to the log ``fedscope``.

    Args:
        folder: by default FEDSCOPE_REGISTRY, or ``checkpoints``.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._registry = RunRegistry(registry_folder({} if folder is None else {"registry": folder}))

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._registry.root

    @property
    def newest(self) -> Run:
        """The newest run.

        Raises:
            UserError: there is none.
        """
        return Run(self._registry.newest())

    def __iter__(self) -> Iterator[Run]:
        return iter(sorted(self._whole(reporter(progress=False)), key=lambda run: run.created))

    def __len__(self) -> int:
        return sum(1 for _ in self._whole())

    def _whole(self, reporter: Reporter = SILENT) -> Iterator[Run]:
        for folder in self._registry.folders():
            try:
                if folder.has_manifest:
                    yield Run(folder)
            except UserError as error:
                reporter.note(f"{folder.name} is left out: {error}")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._registry.has(name)

    def __getitem__(self, name: str) -> Run:
        """Return a run."""
        return Run(self._registry.run(name))

    def delete(self, name: str) -> None:
        """Delete a run with all its files.

        Raises:
            UserError: there is none of that name.
        """
        self._registry.delete(self._registry.run(name))

    def table(self) -> Table:
        """Return a line per run."""
        tables = [run.table() for run in self]
        columns = tables[0].columns if tables else ("name",)
        return Table(
            f"Runs in {self.folder}", columns, tuple(row for table in tables for row in table.rows), ()
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """Return each run's manifest and metrics."""
        return [run.to_dict() for run in self]
