"""Every part of a panel stands in plotly's chart where its numbers are, or is refused."""

from typing import Any

import numpy as np
import pytest

from fedscope.figures.panels import Bars, Dots, Hatched, Line, Matrix, Panel, Part, RuledLine, Stems
from fedscope.report.plotly_panels import chart
from fedscope.report.subjects import Subject

X, Y = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 6.0])
REACH = np.array([[0.5, 0.25, 1.0], [2.0, 1.0, 0.5]])  # below, above
LINE = Line("a", X, Y)


def made(*parts: Part, **more: Any) -> Any:
    looks = {"a": Subject(0, "a", "#0072b2", "solid", "circle")}
    return chart("x", Panel(parts, **more), looks, alt="", caption="")


def test_a_line_has_its_band_below_and_above() -> None:
    low, high, line = made(Line("a", X, Y, REACH)).data
    assert (low["y"], high["y"], line["y"]) == ([2.5, 4.75, 5], [5, 6, 6.5], [3, 5, 6])
    assert low["x"] == high["x"] == line["x"] == [1, 2, 4]
    assert high["fill"] == "tonexty"


def test_dots_and_stems() -> None:
    dots, stems = made(Dots(X, Y, label="a"), Stems(X, Y, Y + 1, "k", label="a"), LINE).data[:2]
    assert (dots["x"], dots["y"], dots["mode"]) == ([1, 2, 4], [3, 5, 6], "markers")
    assert stems["y"] == [3, 4, None, 5, 6, None, 6, 7, None]


def test_stripes_and_ruled_lines_are_shapes() -> None:
    found = made(LINE, Hatched(X, X + 0.5), RuledLine(2.5), RuledLine(7.0, upright=True)).layout["shapes"]
    *stripes, across, upright = found
    assert [(one["x0"], one["x1"], one["y0"], one["y1"]) for one in stripes] == [
        (x, x + 0.5, 0, 1) for x in X
    ]
    assert (across["y0"], across["y1"], across["xref"]) == (2.5, 2.5, "paper")
    assert (upright["x0"], upright["x1"], upright["yref"]) == (7, 7, "paper")


def test_a_matrix_marks_what_is_missing() -> None:
    values = np.array([[np.nan, 1.0, np.nan], [2.0, np.nan, 3.0], [4.0, 5.0, np.nan]])
    cells, missing = made(Matrix(values, ("0", "1", "2"), 1.0, 5.0), LINE).data[:2]
    assert cells["z"] == [[None, 1, None], [2, None, 3], [4, 5, None]]
    assert (cells["zmin"], cells["zmax"]) == (1, 5)
    assert missing["z"] == [[None, None, 1], [None, None, None], [None, None, None]]


def test_what_has_no_chart_is_told() -> None:
    with pytest.raises(TypeError, match="there is no chart of Bars"):
        made(LINE, Bars(X, Y, REACH))
