"""Records of clients as drawings, so that a figure can be drawn again without computing anything."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.clients.alignment import alignment_figure
from fedscope.figures.clients.gaps import gap_figure
from fedscope.figures.clients.matrices import matrix_figure
from fedscope.figures.clients.panels import Panels, lacking, reaches, values
from fedscope.figures.kinds import ClientsKind
from fedscope.records.clients_record import ClientsRecord

HEIGHT = 1.2  # inches
TERMS = {"measured": "measured", "first": "first order", "second": "second order", "remainder": "remainder"}
BAR = 0.2  # of the room of a client


def drift_figure(record: ClientsRecord, *, width: float = style.SINGLE_COLUMN) -> Figure:
    """Draw the terms of G(w_k) − G(w̄) for each client, of the global and of its own loss, and their means."""
    found = record.averaging
    if not found:
        lacking(record, "cost of averaging", "drift")
    notes = "G(wₖ) − G(w̄) and the terms of its expansion at w̄ = Σ pₖwₖ; dashed: the means Σ pₖ; bars: 95 %"
    with style.paper_style():
        panels = Panels(
            record, 2, width=width, height=HEIGHT, notes=notes, legend=2 if width < style.WIDE_COLUMN else 1,
            columns=1 if width < style.WIDE_COLUMN else 2,
        )  # fmt: skip
        colors, at = style.method_colors(len(TERMS)), np.arange(len(record.clients))
        drifts = {"global loss $F$": found.overall, "own loss $f_k$": found.own}
        for index, (name, one) in enumerate(drifts.items()):
            axes = panels.axes(index, name)
            for place, (term, said) in enumerate(TERMS.items()):
                amounts = [getattr(client, term) for client in one.clients]
                axes.bar(
                    at + (place - 1.5) * BAR, values(amounts), BAR, yerr=reaches(amounts),
                    color=colors[place], label=said, error_kw={"elinewidth": 0.5, "ecolor": "0.2"},
                    alpha=0.75,
                )  # fmt: skip
                mean = getattr(one.mean, term).value
                axes.axhline(mean, color=colors[place], linewidth=0.7, linestyle=style.LINESTYLES[1])
            axes.axhline(0, color="0.5", linewidth=0.5)
            panels.name_clients(axes, record.numbers)
            if index == 0:
                panels.legend(axes, columns=2 if width < style.WIDE_COLUMN else 4)
    return panels.page.figure


def draw(
    records: Sequence[ClientsRecord], kind: ClientsKind = "gap", *, width: float = style.SINGLE_COLUMN
) -> Figure:
    """Draw one kind of figure of one record.

    ``gap``: each quantity at the clients' weights and at the global ones; ``alignment``: the updates'
    Rayleigh quotients and shares; ``drift``: the cost of averaging by orders; ``matrix``: the pairs of
    clients.
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
