"""Lines over the rounds, of which many are drawn in groups."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from fedscope.figures import style
from fedscope.figures.page import MOST_KEYS, panels_figure
from fedscope.figures.panels import Line, Panel

MOST_LINES = 12  # of one length that one pair of axes shows
GROUPS = 3  # that more are drawn in
BEHIND = {"color": "0.87", "linewidth": 0.6}


def rounds_figure(lines: Sequence[Line], *, y_label: str, title: str = "", caption: str = "") -> Figure:
    """Draw lines over the rounds that all share, and beside them whole those that are longer.

    More than a pair of axes can show are drawn in panels side by side by their last value, the highest first.
    """
    ends = {line.label: line.x[-1] for line in lines if len(line.x)}  # a line may have no value at all
    shared = min(ends.values(), default=0.0)
    longer = [line for line in lines if ends.get(line.label, 0.0) > shared]
    if not longer and len(lines) <= MOST_LINES:
        return panels_figure([Panel(lines, "round", y_label)], title=title, caption=caption)
    if not longer:
        panels = _grouped(lines, y_label)
        return panels_figure(
            panels,
            columns=len(panels),
            legend="each",
            title=title,
            caption=caption,
            width=style.DOUBLE_COLUMN,
        )
    cut = [line.where(line.x <= shared) for line in lines]
    panels = [
        Panel(cut, "round", y_label, f"all, to round {shared:.0f}"),
        Panel(longer, "round", y_label, f"those trained to round {max(ends.values()):.0f}"),
    ]
    return panels_figure(
        panels, columns=2, keys=MOST_KEYS, title=title, caption=caption, width=style.WIDE_COLUMN
    )


def _grouped(lines: Sequence[Line], y_label: str) -> list[Panel]:
    reference, *others = lines
    reference = replace(reference, look={"color": style.INK, "linestyle": "--"})
    ranked = sorted(others, key=_end, reverse=True)
    size = -(-len(ranked) // GROUPS)
    panels = []
    for first in range(0, len(ranked), size):
        group = ranked[first : first + size]
        own = [replace(line, look=style.curve_look(place)) for place, line in enumerate(group)]
        behind = [
            replace(line, band=None, label=f"_{line.label}", look=BEHIND)
            for line in others if line not in group
        ]  # fmt: skip
        panels.append(Panel([*behind, reference, *own], "round", y_label))
    return panels


def _end(line: Line) -> float:
    known = line.y[np.isfinite(line.y)]
    return float(known[-1]) if len(known) else -np.inf
