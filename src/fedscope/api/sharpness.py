"""Sharpness of checkpoints and networks by its published definitions."""

from collections.abc import Sequence
from typing import Unpack

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.printed_results import Recorded, axes_of, on_screen
from fedscope.api.reporting import reporter
from fedscope.api.sources import On, Weights, found
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import BatchNormMode, ReadingName
from fedscope.errors import UserError, check_keywords
from fedscope.figures.runs.row_dots import draw_values, values_figure
from fedscope.figures.style import paper_style
from fedscope.figures.text.hessian_table import Table
from fedscope.figures.text.sharpness_tables import sharpness_table
from fedscope.records.sharpness_compared import compared
from fedscope.records.sharpness_record import SharpnessEntry, SharpnessRecord
from fedscope.workflows.sharpness.measure_sharpness import measure
from fedscope.workflows.sharpness.sharpness_request import SharpnessRequest
from fedscope.workflows.study import Session


class SharpnessTable(Recorded[SharpnessRecord]):
    """What was measured; :attr:`records` has it as ``fedscope sharpness --json`` prints it."""

    def __init__(self, records: Sequence[SharpnessRecord]) -> None:
        super().__init__(compared(records))

    def __getitem__(self, name: str) -> SharpnessEntry:
        """Return a quantity of the first checkpoint."""
        one = self.records[0].quantity(name)
        if one is None:
            known = ", ".join(one.name for one in self.records[0].quantities)
            raise UserError(f"{name!r} was not measured; there are {known}")
        return one

    def table(self) -> Table:
        """Return the table that ``fedscope sharpness`` prints."""
        return sharpness_table(self.records)

    def figure(self) -> Figure:
        """Return a picture, a panel for each quantity."""
        return on_screen(values_figure(self.records))

    def plot(self, ax: Axes | None = None, *, quantity: str | None = None) -> Axes:
        """Draw one quantity of every checkpoint, the first unless it is named; return the axes.

        Raises:
            UserError: it was not measured.
        """
        one = self[quantity] if quantity else self.records[0].quantities[0]
        axes = axes_of(ax, height=0.7 + 0.25 * len(self.records))
        with paper_style():
            draw_values(axes, self.records, one.name)
        return axes


def sharpness(
    *what: Weights,
    only: Sequence[str] = (),
    rho: float | None = None,
    m: int = 128,
    steps: int = 20,
    reading: ReadingName = "paper",
    pairs: int = 20,
    normalize_logits: bool = False,
    layer: str | None = None,
    target: float = 0.1,
    bn: BatchNormMode = "eval",
    recompute: bool = False,
    **on: Unpack[On],
) -> SharpnessTable:
    """Measure sharpness of checkpoints or networks, each quantity by its paper's equation.

    All share samples and draws. Results of checkpoints are kept in the registry and found again.

    Args:
        *what: as for :func:`measure`; none: the registry's newest run.
        only: names of quantities, such as ``pac_bayes``, or ``all``; none: the usual ones.
        rho: radius of every quantity that has one; None: each one's own.
        m: samples of a batch that has a perturbation of its own.
        steps: of the search for worst cases.
        reading: Auto-PGD as published and for p = ∞ ``Vertices``, or Auto-PGD as the program of
            Andriushchenko et al. has it.
        pairs: of random perturbations.
        normalize_logits: of worst and average cases.
        layer: name of the weights that relative flatness is of; None: the last linear layer's.
        target: share of accuracy that PAC-Bayes σ may cost.
        bn: BatchNorm's statistics: ``eval`` as stored, ``recalibrate``, or the ``batch``'s own.
        recompute: measure again what the registry has.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: a checkpoint, data or option is wrong; the message says how to mend it.
    """
    check_keywords(sharpness, on, On)
    request = SharpnessRequest(
        only=tuple(only), rho=rho, m=m, steps=steps, reading=reading, pairs=pairs,
        normalize_logits=normalize_logits, layer=layer, target=target, bn=bn, versions=versions(),
    )  # fmt: skip
    sources = found(what, on, bn)
    session = Session(reporter(progress=on.get("progress", False)), sources.keep, again=recompute)
    return SharpnessTable([measure(problem, request, session) for problem in sources.problems])
