"""Several checkpoints or networks beside each other, on the same samples and probes."""

from collections.abc import Sequence
from typing import Any, Unpack

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.measure import Curvature, curvatures_of
from fedscope.api.printed_results import Drawn, axes_of, on_screen
from fedscope.api.sources import On, Weights, found
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.errors import UserError, check_keywords
from fedscope.figures.embedded_record import made_from
from fedscope.figures.figure_kinds import SpectrumKind
from fedscope.figures.runs.row_dots import draw_forest
from fedscope.figures.spectrum.hessian_figures import draw
from fedscope.figures.style import paper_style
from fedscope.figures.text.comparison_table import comparison_table
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.labels import titles
from fedscope.records.differences import Difference, compared, differences_to_first
from fedscope.workflows.requests import Request


class Comparison(Drawn):
    """The differences of several checkpoints to the first one, with errors and verdicts."""

    def __init__(self, curvatures: Sequence[Curvature]) -> None:
        self.curvatures = tuple(curvatures)
        self._records = [one.record for one in curvatures]

    @property
    def differences(self) -> list[list[Difference]]:
        """Of each but the first, a row of its differences to the first.

        Each has ``quantity``, ``value``, ``stderr``, the 95 % ``interval`` and a ``verdict``. All verdicts
        together are right with 95 % (Holm 1979).
        """
        return differences_to_first(self._records)

    def __getitem__(self, place: int) -> Curvature:
        return self.curvatures[place]

    def __len__(self) -> int:
        return len(self.curvatures)

    def table(self) -> Table:
        """Return the table of differences that ``fedscope hessian A B`` prints."""
        return comparison_table(self._records)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the records of schema ``fedscope/hessian/1``, each with its ``differences`` to the first."""
        return [record.to_json() for record in compared(self._records)]

    def origin(self) -> dict[str, Any]:
        """Return checkpoints and settings."""
        return made_from(self._records)

    def figure(self, kind: SpectrumKind = "bars") -> Figure:
        """Return a picture of all: ``bars`` of λ_max and trace, ``density``, ``eigenvalues``, ``influence``.

        Raises:
            UserError: what is shown was not measured.
        """
        return on_screen(draw(self._records, kind))

    def plot(self, ax: Axes | None = None, *, quantity: str = "λ_max") -> Axes:
        """Draw each one's difference to the first in a quantity, with its 95 % interval; return the axes.

        Raises:
            UserError: they were not compared in this quantity.
        """
        rows = [[one for one in row if one.quantity == quantity] for row in self.differences]
        if not all(rows):
            known = dict.fromkeys(one.quantity for row in self.differences for one in row)
            raise UserError(f"they were not compared in {quantity!r}; choose one of {', '.join(known)}")
        axes, names = axes_of(ax, height=0.7 + 0.25 * len(rows)), titles(self._records)
        with paper_style():
            draw_forest(axes, names[1:], [row[0] for row in rows])
            axes.set_title(f"to {names[0]}")
        return axes


def compare(
    *what: Weights | Curvature,
    top_k: int = 1,
    tol: float = 1e-3,
    probes: int | None = None,
    trace_rtol: float = 0.05,
    density: bool = False,
    clients: bool = False,
    recompute: bool = False,
    **on: Unpack[On],
) -> Comparison:
    """Compare the curvature of two or more checkpoints or networks with that of the first.

    All are measured on the same samples with the same probes, so that differences have smaller errors than
    values.

    Args:
        *what: as for :func:`measure`; or what it returned, measured on the same samples.
        top_k: see :func:`measure`, as of tol, probes, trace_rtol, density, clients and recompute.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: fewer than two, or a checkpoint, data or option is wrong.
    """
    check_keywords(compare, on, On)
    if len(what) < 2:
        raise UserError("a comparison needs two or more checkpoints or networks")
    request = Request(
        top_k=top_k, tol=tol, probes=probes, trace_rtol=trace_rtol, density=density, clients=clients,
        versions=versions(),
    )  # fmt: skip
    weights = [one for one in what if not isinstance(one, Curvature)]
    new = iter(curvatures_of(found(weights, on), request, on, again=recompute) if weights else ())
    return Comparison([one if isinstance(one, Curvature) else next(new) for one in what])
