"""A run of the registry: its settings, rounds and checkpoints."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.printed_results import Drawn, axes_of, on_screen
from fedscope.api.sources import Reference, Referring
from fedscope.checkpoints.registry.best import best
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.figures.figure_kinds import RunsKind
from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.panels import Line, Panel
from fedscope.figures.runs.drawings import draw
from fedscope.figures.style import paper_style
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import data_name, method_name
from fedscope.records.run_curves import RunCurves, provenance
from fedscope.workflows.run_records import run_records


class Run(Drawn, Referring):
    """A trained run; measuring it means its final model."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._manifest = folder.manifest()

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return self._folder.name

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._folder.folder

    @property
    def created(self) -> str:
        """When it was begun, ISO 8601."""
        return self._manifest.created

    @property
    def state(self) -> str:
        """``finished``, ``unfinished`` or ``diverged``."""
        return self._folder.status(self._manifest)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determines its bits."""
        return self._manifest.settings.model_dump()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A dict per round: ``round``, ``accuracy`` and ``loss`` on test samples, ``train_loss``, costs."""
        return [round.model_dump() for round in self._folder.metrics()]

    @property
    def accuracy(self) -> float | None:
        """The last round's accuracy, a share; None before the first, or where that was not evaluated."""
        rounds = self._folder.metrics()
        return rounds[-1].accuracy if rounds else None

    @property
    def reference(self) -> Reference:
        """Its final model."""
        return Reference(self.name, self._folder.root)

    def at(self, which: int | str) -> "CheckpointOf":
        """Return one of its checkpoints: a round that was kept, ``best``, ``final``, ``client3``…"""
        return CheckpointOf(Reference(f"{self.name}@{which}", self._folder.root))

    def table(self) -> Table:
        """Return its method, data, rounds, and accuracy: the last one, and that of its best round."""
        settings, rounds = self._manifest.settings, self._folder.metrics()
        accuracies = [round.accuracy for round in rounds if round.accuracy is not None]
        top = best(rounds)
        shares = [
            "–" if share is None else f"{share:.2%}"
            for share in (accuracies[-1] if accuracies else None, top.accuracy if top else None)
        ]
        cells = (
            self.name, method_name(settings.method), data_name(settings.dataset),
            f"{len(rounds)} of {settings.rounds}", *shares, self.state,
        )  # fmt: skip
        return Table("Run", ("name", "method", "data", "rounds", "accuracy", "best", "state"), (cells,), ())

    def to_dict(self) -> dict[str, Any]:
        """Return manifest and metrics."""
        return {"manifest": self._manifest.model_dump(), "metrics": self.metrics}

    def _curves(self) -> list[RunCurves]:
        return run_records(RunRegistry(self._folder.root), [self.name])

    def origin(self) -> dict[str, Any]:
        """Return the run and its settings."""
        return provenance(self._curves())

    def figure(self, kind: RunsKind = "accuracy") -> Figure:
        """Return a picture as ``fedscope plot-runs`` draws it.

        Args:
            kind: ``accuracy``, ``bytes``, ``rounds``, ``sharpness``, ``gap`` or ``layers``.

        Raises:
            UserError: the run has not what this kind shows.
        """
        return on_screen(draw(self._curves(), kind))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the accuracy over the rounds, and return the axes: several runs may share them.

        Raises:
            UserError: no round is finished.
        """
        axes = axes_of(ax)
        panel = self._panel()
        color = f"C{len(axes.lines)}" if axes.lines else None
        with paper_style():
            draw_panel(axes, panel)
            if color:
                axes.lines[-1].set_color(color)
            axes.legend()
        return axes

    def _panel(self) -> Panel:
        rounds = self._folder.metrics()
        if not rounds:
            raise UserError(f"{self.name} has no finished round to draw")
        places = np.array([round.round for round in rounds], dtype=np.float64)
        values = [np.nan if round.accuracy is None else 100 * round.accuracy for round in rounds]
        line = Line(self.name, places, np.array(values)).connected
        return Panel([line], "round", "test accuracy (%)")


class CheckpointOf(Referring):
    """A checkpoint of a run, by name."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference

    @property
    def reference(self) -> Reference:
        """Its name and registry."""
        return self._reference

    def __repr__(self) -> str:
        return self._reference.name
