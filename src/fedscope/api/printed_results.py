"""What the results of the Python face have in common: how they print, and axes to draw in."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.figures.embedded_record import made_from
from fedscope.figures.style import SINGLE_COLUMN, check_format, paper_style, save
from fedscope.figures.text.hessian_table import Table
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.sharpness_record import SharpnessRecord

DPI = 200  # of new axes on a screen
Record = TypeVar("Record", ClientsRecord, LandscapeRecord, SharpnessRecord)


class Result(ABC):
    """A result that prints as a table, and knows its JSON and its picture."""

    @abstractmethod
    def table(self) -> Table:
        """Return the numbers as a table of text."""

    @abstractmethod
    def to_dict(self) -> Any:
        """Return the numbers as plain data, as the command prints them with ``--json``."""

    def tables(self) -> list[Table]:
        """Return all tables that are printed, :meth:`table` first."""
        return [self.table()]

    def __repr__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables())


class Drawn(Result):
    """A result with a picture."""

    @abstractmethod
    def figure(self) -> Figure:
        """Return the picture as the command draws it, laid out for a paper."""

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw in ``ax``, or in new axes of pyplot, and return them."""

    @abstractmethod
    def origin(self) -> dict[str, Any]:
        """Return what the picture was made from, for its file."""

    def save(self, path: str | Path) -> None:
        """Write :meth:`figure` to a .png, .pdf or .svg file, with what it was made from.

        Raises:
            UserError: another ending, or the file cannot be written.
        """
        check_format(Path(path))
        save(self.figure(), Path(path), record=self.origin())


class Recorded(Drawn, Generic[Record]):
    """A drawn result of records, one of each checkpoint."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records: Sequence[Record] = tuple(records)

    def __len__(self) -> int:
        return len(self.records)

    def to_dict(self) -> Any:
        """Return the record as the command prints it with ``--json``; of several checkpoints a list."""
        plain = [record.to_json() for record in self.records]
        return plain[0] if len(plain) == 1 else plain

    def origin(self) -> dict[str, Any]:
        """Return checkpoints and settings."""
        return made_from(self.records)


def axes_of(ax: Axes | None, *, height: float = 2.4, space: bool = False) -> Axes:
    """Return the caller's axes, or new ones of pyplot, ``height`` inches high, in the paper's style."""
    if ax is not None:
        return ax
    # outside of the style: a notebook's backend, set up with the first figure, makes pyplot interactive
    figure = pyplot.figure(figsize=(SINGLE_COLUMN, height), dpi=DPI, layout="constrained")
    with paper_style():
        return figure.add_subplot(projection="3d" if space else None)


def on_screen(figure: Figure) -> Figure:
    """Return the figure, which a notebook shows once pyplot has loaded the notebook's backend."""
    pyplot.draw_if_interactive()  # type: ignore[no-untyped-call]
    return figure
