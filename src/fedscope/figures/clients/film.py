"""A film of a run's clients: the picture of each round, all of one size and on the axes of all."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.from_records import draw
from fedscope.figures.clients.matrices import matrix_figure
from fedscope.figures.kinds import ClientsKind
from fedscope.records.clients_record import ClientsRecord


def frame_figures(
    records: Sequence[ClientsRecord], kind: ClientsKind = "gap", *, width: float = style.SINGLE_COLUMN
) -> list[Figure]:
    """Return the picture of each round in order, for :func:`fedscope.figures.animation.save_film`.

    Matrices have the order of clients and the colours of the last round's, where the clients are the same.
    """
    found = sorted(records, key=lambda one: one.checkpoint.round or 0)
    if len({record.checkpoint.run for record in found}) > 1:
        raise UserError("a film of clients is of one run: make several films")
    counts = {len(record.clients) for record in found}
    if len(counts) > 1:
        raise UserError(
            f"the rounds have {' and '.join(map(str, sorted(counts)))} clients, and a film needs as many in "
            "each: choose --rounds, or draw curves into a .png"
        )
    if kind == "matrix":
        figures = [matrix_figure(record, width=width, among=found) for record in found]
    else:
        figures = [draw([record], kind, width=width) for record in found]
        _share_heights(figures)
    if len({(*figure.get_size_inches(), len(figure.axes)) for figure in figures}) > 1:
        raise UserError("the rounds have not the same parts measured: name them with --only")
    return figures


def _share_heights(figures: Sequence[Figure]) -> None:
    for same in zip(*(figure.axes for figure in figures), strict=False):
        ends = [axes.get_ylim() for axes in same]
        for axes in same:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
