"""Records of clients as drawings, so that a figure can be drawn again without computing anything."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.alignment import alignment_figure
from fedscope.figures.clients.drift import drift_figure
from fedscope.figures.clients.gaps import gap_figure
from fedscope.figures.clients.matrices import matrix_figure
from fedscope.figures.kinds import ClientsKind
from fedscope.records.clients import ClientsRecord


def draw(
    records: Sequence[ClientsRecord], kind: ClientsKind = "gap", *, width: float = style.SINGLE_COLUMN
) -> Figure:
    """Draw one kind of figure of one record.

    ``gap``: each quantity at the clients' weights and at the global ones; ``alignment``: the updates'
    Rayleigh quotients and shares; ``drift``: the cost of averaging by orders; ``matrix``: the pairs of
    clients.

    Raises:
        UserError: no record or several, or one without what this kind shows.
    """
    if len(records) != 1:
        raise UserError(f"a figure of clients is of one round, not {len(records)}: make several figures")
    return _DRAWINGS[kind](records[0], width=width)


_DRAWINGS: Mapping[ClientsKind, Callable[..., Figure]] = {
    "gap": gap_figure,
    "alignment": alignment_figure,
    "drift": drift_figure,
    "matrix": matrix_figure,
}
