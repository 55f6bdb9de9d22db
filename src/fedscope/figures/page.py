"""A page of panels: titles, captions and notes, a legend, and rows of axes that may be shared.

Lengths are in inches from the top left corner, so that text has the same room at any size of the figure.
"""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.label_placement import POINTS, text_size
from fedscope.figures.panel_axes import draw_panel, key_of
from fedscope.figures.panels import Matrix, Panel, looks_of

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.42, 0.1, 0.06, 0.36
HIGH, LOW, GAP = 1.9, 1.0, 0.12  # of the first row's panels, the others', and between those with shared axes
LARGEST_MATRIX, BAR_ROOM = 2.6, 0.36  # the side of a matrix at most, and the bar of its colours
LONGEST_SLANTED = 1.8  # of names below an axis
ASIDE, UNDER = 0.14, 0.3  # beside names of rows that stand once; between rows with labels of their own
TITLE_LINE, SMALL_LINE, LEGEND_ROW = 0.15, 0.115, 0.125
BESIDE_NAMES, BESIDE_LABEL = 0.12, 0.1428
MOST_KEYS = 4  # columns of a legend
SAMPLE, DOT = 0.42, 0.25  # inches: beside a name in a legend of lines, and of dots

Box = tuple[float, float, float, float]


def wrapped(text: str, *, width: float, size: float) -> list[str]:
    # a character is half as wide as high
    return [style.typeset(line) for line in wrap(text, max(8, int(width * POINTS / (0.5 * size))))]


class Page:
    """A matplotlib figure of ``width`` × ``height`` inches."""

    def __init__(self, *, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))

    @classmethod
    def of(cls, figure: Figure) -> "Page":
        page = cls(width=figure.get_figwidth(), height=figure.get_figheight())
        page.figure = figure
        return page

    def box(self, *, left: float, top: float, width: float, height: float) -> Box:
        bottom = self.height - top - height
        return left / self.width, bottom / self.height, width / self.width, height / self.height

    def write(self, text: str, *, center: float, top: float, **look: Any) -> None:
        self.figure.text(center / self.width, 1 - top / self.height, text, ha="center", va="top", **look)

    def write_head(self, titles: Sequence[str], notes: Sequence[str]) -> float:
        """Write a bold title and fainter notes below it; return where the next line would be."""
        below = TOP
        for line in titles:
            self.write(line, center=self.width / 2, top=below, fontsize=style.TITLE_SIZE, fontweight="bold")
            below += TITLE_LINE
        return self.write_notes(notes, top=below)

    def write_notes(self, notes: Sequence[str], *, top: float) -> float:
        """Write small, faint lines, the first at ``top``; return where the next would be."""
        for line in notes:
            self.write_note(line, center=self.width / 2, top=top)
            top += SMALL_LINE
        return top

    def write_note(self, line: str, *, center: float, top: float) -> None:
        self.write(line, center=center, top=top, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)


def panels_figure(
    panels: Sequence[Panel],
    *,
    columns: int = 1,
    shared: bool = True,
    width: float = style.SINGLE_COLUMN,
    high: float = HIGH,
    low: float = LOW,
    left: float = LEFT,
    above: float = 0.0,
    title: str = "",
    caption: str = "",
    notes: str = "",
    keys: int | None = 2,
    legend: Literal["above", "below", "each"] = "above",
) -> Figure:
    """Draw panels in rows on a page; a line has one look in all panels.

    ``shared``: panels below each other have one horizontal axis, those beside each other one vertical axis,
    whose ticks and name stand once. All lengths are in inches: ``high`` is of the panels of the first row,
    ``low`` of the others, ``left`` the room for ticks and names, ``above`` the room below the legend.
    ``keys`` are the legend's columns, None: as many as have room; ``legend="each"`` has one above each panel,
    of the lines with a look of their own.
    """
    for panel in panels:
        if panel.lines and not any(np.isfinite(line.y).any() for line in panel.lines):
            raise UserError("there is no finite value to draw")
    with style.paper_style():
        rows = _Rows(panels, columns, shared, width, left, (high, low), keys, legend)
        return rows.draw(title, caption, notes, room=above)


class _Rows:
    """Rows of panels on a page, with their legend."""

    def __init__(
        self,
        panels: Sequence[Panel],
        columns: int,
        shared: bool,
        width: float,
        left: float,
        heights: tuple[float, float],
        keys: int | None,
        legend: Literal["above", "below", "each"],
    ) -> None:
        self.panels, self.columns, self.width, self.legend = panels, columns, width, legend
        self.below_each_other, self.beside = shared and columns == 1, shared and columns > 1
        self.rows = -(-len(panels) // columns)
        self.heights = [heights[0], *[heights[1]] * (self.rows - 1)]
        self.lefts = [self._left(column, left) for column in range(columns)]
        self.side = (width - sum(self.lefts) - RIGHT) / columns
        self.matrices = any(isinstance(part, Matrix) for panel in panels for part in panel.parts)
        if self.matrices:
            self.side = min(self.side, LARGEST_MATRIX)
            self.heights = [self.side] * self.rows
        self.start = (width - sum(self.lefts) - RIGHT - columns * self.side) / 2
        lines = {line.label: line for panel in panels for line in panel.lines if not line.look}
        self.looks = dict(zip(lines, looks_of([*lines.values()]), strict=True))
        self.labelled = any(panel.x_label for panel in panels)
        self.below = self._below()
        labelled = {part.label: part for panel in panels for part in panel.parts if part.label}
        self.parts = [part for name, part in labelled.items() if not name.startswith("_")]
        widest = max((_wide(part.label) for part in self.parts), default=0.0)
        widest += SAMPLE if legend == "above" else DOT
        self.keys = keys or max(1, min(len(self.parts), int(width / widest)))

    def _left(self, column: int, left: float) -> float:
        of = self.panels[column]
        if column and (self.beside or (of.y.names and of.y.names == self.panels[0].y.names)):
            return ASIDE if of.y.names else GAP
        if of.y.names:
            return max(_wide(name) for _, name in of.y.names) + BESIDE_NAMES + BESIDE_LABEL * bool(of.y_label)
        return left

    def _below(self) -> float:
        last = self.panels[-1]
        names = [_wide(name) for _, name in last.x.names or () if last.x.slanted]
        slanted = min(max(names, default=0.0), LONGEST_SLANTED) / 2
        return slanted + BAR_ROOM * self.matrices - SMALL_LINE * (not self.labelled)

    def draw(self, title: str, caption: str, notes: str, *, room: float) -> Figure:
        heads = wrapped(title, width=self.width, size=style.TITLE_SIZE)
        captions, foot = (wrapped(text, width=self.width, size=style.SMALL_SIZE) for text in (caption, notes))
        rows = -(-len(self.parts) // self.keys)
        if self.legend == "each":
            rows = max(sum(part.label[:1] != "_" for part in panel.lines) for panel in self.panels)
        legend = LEGEND_ROW * rows
        above = TOP + TITLE_LINE * len(heads) + SMALL_LINE * len(captions) + 0.05
        above += legend * (self.legend != "below")
        tops = self._tops(above + room)
        bottom = tops[-1] + self.heights[-1] + BOTTOM + self.below
        below = legend * (self.legend == "below")
        page = Page(width=self.width, height=bottom + below + SMALL_LINE * len(foot))
        page.write_head(heads, captions)
        page.write_notes(foot, top=bottom + below - 0.02 * (not below))
        first: Axes | None = None
        for place, panel in enumerate(self.panels):
            axes = self._axes(page, place, panel, tops, first)
            first = first or axes
        if self.parts and self.legend != "each":
            self._draw_legend(page, first, up=tops[0] - above + 0.03, at=bottom)
        return page.figure

    def _head(self, row: int) -> float:
        panels = self.panels[row * self.columns : (row + 1) * self.columns]
        return SMALL_LINE * any(panel.head for panel in panels) + TITLE_LINE * any(p.title for p in panels)

    def _tops(self, above: float) -> list[float]:
        tops = [above + self._head(0)]
        for row in range(1, self.rows):
            apart = GAP if self.below_each_other else self.below + (BOTTOM if self.labelled else UNDER)
            tops.append(tops[-1] + self.heights[row - 1] + apart + self._head(row))
        return tops

    def _axes(self, page: Page, place: int, panel: Panel, tops: Sequence[float], first: Axes | None) -> Axes:
        row, column = divmod(place, self.columns)
        left = self.start + sum(self.lefts[: column + 1]) + column * self.side
        axes = page.figure.add_axes(
            page.box(left=left, top=tops[row], width=self.side, height=self.heights[row]),
            sharex=first if self.below_each_other else None, sharey=first if self.beside else None,
        )  # fmt: skip
        draw_panel(axes, panel, self.looks)
        if panel.head:
            page.write_note(panel.head, center=left + self.side / 2, top=tops[row] - SMALL_LINE - 0.01)
        if self.below_each_other and row < self.rows - 1:
            axes.tick_params(labelbottom=False)
            axes.xaxis.label.set_visible(False)
        if self.lefts[column] in (GAP, ASIDE):
            axes.tick_params(labelleft=False)
            axes.yaxis.label.set_visible(False)
        axes.yaxis.set_label_coords((BESIDE_LABEL - self.lefts[column]) / self.side, 0.5)
        if self.legend == "each":
            own = [part for part in panel.lines if not part.label.startswith("_")]
            place_legend(axes, {part.label: key_of(part, {}) for part in own}, columns=1, up=0.01)
        return axes

    def _draw_legend(self, page: Page, axes: Axes | None, *, up: float, at: float) -> None:
        keys = {part.label: key_of(part, self.looks) for part in self.parts}
        if self.legend == "above" and axes:
            place_legend(axes, keys, columns=self.keys, up=up / self.heights[0])
            return
        page.figure.legend(
            handles=in_rows([*keys.values()], self.keys), ncols=self.keys, loc="upper center",
            bbox_to_anchor=(0.5, 1 - at / page.height), handletextpad=0.2, columnspacing=1.0,
            labelspacing=0.2, borderaxespad=0,
        )  # fmt: skip


def place_legend(axes: Axes, keys: Mapping[str, Artist], *, columns: int, up: float) -> None:
    axes.legend(
        handles=in_rows([*keys.values()], columns), loc="lower left", bbox_to_anchor=(0, 1 + up),
        borderaxespad=0, labelspacing=0.25, handlelength=2.6, ncols=columns, columnspacing=1.2,
    )  # fmt: skip


def in_rows(keys: Sequence[Artist], columns: int) -> list[Artist]:
    """Return the entries in the order in which matplotlib, column by column, makes rows of them."""
    return [key for first in range(columns) for key in keys[first::columns]]


def _wide(text: str) -> float:
    return text_size(style.typeset(text), style.SMALL_SIZE)[0] / POINTS
