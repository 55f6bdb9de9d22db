"""Flatness gaps: loss, λ_max and trace of each client and of all, at its own and at the global weights."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.figures import style
from fedscope.figures.clients.panels import Panels, lacking, reaches, values
from fedscope.records.clients_record import SYMBOLS, ClientsRecord, Flatness, Function

HEIGHT = 1.15  # inches
OFFSETS = {"own": -0.16, "global": 0.16}
NOTES = (
    "filled: at the client's weights wₖ, hollow: at the global weights w̄; the line between is the gap; "
    "bars: 95 % of samples and probes"
)
NAMES: dict[Function, str] = {"own": "own loss $f_k$", "global": "global loss $F$"}


def gap_figure(record: ClientsRecord, *, width: float = style.SINGLE_COLUMN) -> Figure:
    """Draw a panel per quantity, and in it two dumbbells per client: its own function, and the global one.

    Each runs from the client's weights (filled) to the global ones (hollow). ``width`` is in inches.
    """
    if not record.flatness:
        lacking(record, "loss, λ_max or trace", "loss,lambda_max,trace")
    with style.paper_style():
        panels = Panels(record, len(record.flatness), width=width, height=HEIGHT, notes=NOTES, legend=1)
        for index, one in enumerate(record.flatness):
            axes = panels.axes(index, SYMBOLS[one.quantity])
            draw_gaps(axes, one)
            panels.name_clients(axes, record.numbers)
            if index == 0:
                panels.legend(axes)
    return panels.page.figure


def draw_gaps(axes: Axes, one: Flatness) -> None:
    """Draw the dumbbells of one quantity, the clients at 0, 1, 2, …"""
    colors = dict(zip(NAMES, style.method_colors(2), strict=True))
    for place, (function, name) in enumerate(NAMES.items()):
        start, end = one.cell(function, "own"), one.cell(function, "global")
        assert start
        assert end
        x, color = np.arange(len(start.clients)) + OFFSETS[function], colors[function]
        first, last = values(start.clients), values(end.clients)
        axes.vlines(x, first, last, color=color, linewidth=0.8, alpha=0.6)
        for amounts, fill, label in ((start.clients, color, name), (end.clients, "white", None)):
            axes.errorbar(
                x, values(amounts), reaches(amounts), fmt="none", ecolor=color, elinewidth=0.5, capsize=1.2,
                capthick=0.5,
            )  # fmt: skip
            axes.plot(
                x, values(amounts), style.MARKERS[place], markersize=3, color=color, markerfacecolor=fill,
                markeredgewidth=0.7, label=label, zorder=3,
            )  # fmt: skip
    if axes.get_ylim()[0] < 0:
        axes.axhline(0, color="0.85", linewidth=0.5, zorder=0)
