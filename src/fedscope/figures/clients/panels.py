"""What the pictures of clients share: a page of panels with a title, names of clients, and intervals."""

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.color_scale import format_value
from fedscope.figures.inch_layout import Page, wrapped
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import Amount, ClientsRecord

MOST_CLIENTS = 100
NAMED = 7.0  # points between the names of clients at least

# inches
LEFT, RIGHT, TOP, BOTTOM = 0.52, 0.08, 0.06, 0.32
TITLE_LINE, NOTE_LINE, LEGEND_LINE = 0.15, 0.112, 0.14
COLUMN_GAP, ROW_GAP = 0.6, 0.42


def lacking(record: ClientsRecord, part: str, only: str) -> NoReturn:
    """Refuse a record without what a picture shows."""
    raise UserError(
        f"the record of {label(record.checkpoint)} has no {part}: measure it with 'fedscope clients --only "
        f"{only} --json FILE'"
    )


class Panels:
    """A page with a title, notes below, and a grid of panels between.

    Args:
        record: whose title stands above.
        count: of panels.
        width: of the page, in inches.
        height: of a panel, in inches.
        notes: text below.
        legend: lines for a legend under the title.
        columns: of panels; as many as fit if not given.
    """

    def __init__(
        self,
        record: ClientsRecord,
        count: int,
        *,
        width: float,
        height: float,
        notes: str,
        legend: int = 0,
        columns: int | None = None,
    ) -> None:
        if len(record.clients) > MOST_CLIENTS:
            raise UserError(f"one figure shows at most {MOST_CLIENTS} clients, not {len(record.clients)}")
        self._columns = columns or (1 if width < style.WIDE_COLUMN else min(count, 3))
        rows = -(-count // self._columns)
        lines = wrapped(notes, width=width - 0.1, size=style.SMALL_SIZE)
        title = wrapped(label(record.checkpoint), width=width, size=style.TITLE_SIZE)[0]
        self._top = TOP + TITLE_LINE + LEGEND_LINE * legend + 0.12
        self._height = height
        bottom = self._top + rows * height + (rows - 1) * ROW_GAP + BOTTOM
        self.page = Page(width=width, height=bottom + NOTE_LINE * len(lines) + 0.04)
        self.page.write(title, center=width / 2, top=TOP, fontsize=style.TITLE_SIZE, fontweight="bold")
        self.page.write_notes(lines, top=bottom, step=NOTE_LINE)
        room = width - RIGHT - LEFT - (self._columns - 1) * COLUMN_GAP
        self._across = room / self._columns

    def axes(self, index: int, name: str) -> Axes:
        """Return a panel by its place, named at its left in plain text or in math."""
        row, column = divmod(index, self._columns)
        left = LEFT + column * (self._across + COLUMN_GAP)
        top = self._top + row * (self._height + ROW_GAP)
        box = self.page.box(left=left, top=top, width=self._across, height=self._height)
        found = self.page.figure.add_axes(box)
        prepare(found, name)
        found.yaxis.set_label_coords(-0.4 / self._across, 0.5)
        return found

    def name_clients(self, axes: Axes, numbers: Sequence[int]) -> None:
        """Name the clients at 0, 1, 2, … on the horizontal axis, as many as have room."""
        name_clients(axes, numbers, width=self._across)

    def legend(self, axes: Axes, columns: int = 2) -> None:
        """Write the legend of a panel under the title."""
        handles, names = axes.get_legend_handles_labels()
        self.page.figure.legend(
            handles, names, loc="upper center", ncols=columns, borderaxespad=0, handletextpad=0.5,
            columnspacing=1.2, bbox_to_anchor=(0.5, 1 - (TOP + TITLE_LINE) / self.page.height),
        )  # fmt: skip


def prepare(axes: Axes, name: str) -> None:
    """Name the vertical axis in plain text or in math, and give it few ticks."""
    axes.set_ylabel(name if "$" in name else style.typeset(name))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(lambda value, _: format_value(value))
    axes.spines[["top", "right"]].set_visible(False)


def name_clients(axes: Axes, numbers: Sequence[int], *, width: float) -> None:
    """Name the clients at 0, 1, 2, … on a horizontal axis of ``width`` inches, as many as have room."""
    room = width * 72 / max(1, len(numbers))
    every = max(1, math.ceil(NAMED * max(len(str(one)) for one in numbers) / 2 / room))
    axes.set_xticks(range(0, len(numbers), every), [str(one) for one in numbers[::every]])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(numbers) - 0.4)
    axes.set_xlabel("client")


def reaches(amounts: Sequence[Amount]) -> np.ndarray:
    """Return how far the 95 % intervals reach below and above the values, (2, K); 0 where there is none."""
    found = np.zeros((2, len(amounts)))
    for i, one in enumerate(amounts):
        if one.interval is not None:
            low, high = one.interval
            found[:, i] = max(0.0, one.value - low), max(0.0, high - one.value)
    return found


def values(amounts: Sequence[Amount]) -> np.ndarray:
    """Return the values, (K,)."""
    return np.array([one.value for one in amounts])
