"""A figure laid out in inches from its top left corner, so that text has the same room at any size."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.figures import style

POINTS = 72.0  # per inch

Box = tuple[float, float, float, float]


def wrapped(text: str, *, width: float, size: float) -> list[str]:
    """Return ``text`` typeset in lines of ``size`` points that fit ``width`` inches."""
    # a character is half as wide as high
    return [style.typeset(line) for line in wrap(text, max(8, int(width * POINTS / (0.5 * size))))]


def width_of(axes: Axes) -> float:
    """Return the width of ``axes`` in points."""
    figure = axes.get_figure()
    assert figure is not None
    return float(POINTS * axes.bbox.width / figure.dpi)


class Page:
    """A matplotlib figure of ``width`` × ``height`` inches."""

    def __init__(self, *, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height))

    def box(self, *, left: float, top: float, width: float, height: float) -> Box:
        """Return matplotlib's rectangle: fractions of the figure from the bottom left."""
        bottom = self.height - top - height
        return left / self.width, bottom / self.height, width / self.width, height / self.height

    def write(self, text: str, *, center: float, top: float, **look: Any) -> None:
        """Write one centred line that hangs from ``top``; ``look`` is matplotlib's ``Text`` properties."""
        self.figure.text(center / self.width, 1 - top / self.height, text, ha="center", va="top", **look)

    def write_head(
        self,
        titles: Sequence[str],
        notes: Sequence[str],
        *,
        top: float,
        title_step: float,
        note_step: float,
    ) -> None:
        """Write lines of a bold title, the first at ``top``, and fainter notes below it."""
        below = self.write_lines(
            titles, top=top, step=title_step, fontsize=style.TITLE_SIZE, fontweight="bold"
        )
        self.write_notes(notes, top=below, step=note_step)

    def write_notes(self, notes: Sequence[str], *, top: float, step: float) -> None:
        """Write small, faint lines, the first at ``top``."""
        self.write_lines(notes, top=top, step=step, fontsize=style.SMALL_SIZE, color=style.FAINT_INK)

    def write_lines(self, lines: Sequence[str], *, top: float, step: float, **look: Any) -> float:
        """Write centred lines ``step`` inches apart, the first at ``top``; return where the next would be."""
        for line in lines:
            self.write(line, center=self.width / 2, top=top, **look)
            top += step
        return top
