"""How the clients' updates lie to the curvature: Rayleigh quotients, and shares of the top eigenspace."""

import numpy as np
from matplotlib.figure import Figure

from fedscope.figures import style
from fedscope.figures.clients.panels import Panels, lacking, reaches, values
from fedscope.figures.numbers import format_estimate
from fedscope.records.clients_record import ClientsRecord

HEIGHT = 1.15  # inches
BAR = 0.36  # of the room of a client


def alignment_figure(record: ClientsRecord, *, width: float = style.SINGLE_COLUMN) -> Figure:
    """Draw bars for each client's own and for the global Hessian: ΔᵀHΔ/‖Δ‖², and the top space's share."""
    found = record.alignment
    if not found:
        lacking(record, "alignment", "alignment")
    each = found.clients
    columns = {
        r"$\Delta^{\!\top}\! H\Delta/\|\Delta\|^2$": [
            [one.own.rayleigh for one in each],
            [one.overall.rayleigh for one in each],
        ],
        f"share in the top {found.k}": [
            [one.own.share for one in each if one.own.share],
            [one.overall.share for one in each if one.overall.share],
        ],
    }
    start = "at the round's start" if found.anchor == "start" else "of the global model"
    notes = (
        f"Δ: a client's weights less those {start}; H at the global model; bars: 95 % over the samples; a "
        f"random direction has a share of {format_estimate(found.random)}"
    )
    with style.paper_style():
        panels = Panels(
            record, 2, width=width, height=HEIGHT, notes=notes, legend=1,
            columns=1 if width < style.WIDE_COLUMN else 2,
        )  # fmt: skip
        at, colors = np.arange(len(each)), style.method_colors(2)
        for index, (name, pair) in enumerate(columns.items()):
            axes = panels.axes(index, name)
            for side, (amounts, who) in enumerate(zip(pair, ("own Hessian", "global Hessian"), strict=True)):
                axes.bar(
                    at + (side - 0.5) * BAR, values(amounts), BAR, yerr=reaches(amounts), color=colors[side],
                    label=who, error_kw={"elinewidth": 0.6, "capsize": 1.4, "capthick": 0.6, "ecolor": "0.2"},
                    alpha=0.75,
                )  # fmt: skip
            axes.axhline(0, color="0.5", linewidth=0.5)
            panels.name_clients(axes, record.numbers)
            if index == 0:
                panels.legend(axes)
    return panels.page.figure
