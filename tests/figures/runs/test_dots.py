"""Numbers of methods as dots: a panel for each quantity, a row for each method."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedscope.errors import UserError
from fedscope.figures.runs.row_dots import dots_figure

DRIFT = {"drift": {"FedAvg": (3.0, 0.5), "FedProx": (1.0, None)}}
COST = {"cost": {"FedAvg": (-2.0, 0.25), "FedProx": (4.0, 1.0)}}
ORDER = {"second order": {"FedProx": (5.0, 1.0)}}


def points(axes: Axes) -> list[tuple[float, float]]:
    found = [line.get_xydata() for line in axes.lines if line.get_marker() not in ("", "None")]
    return [(float(x), float(y)) for places in map(np.asarray, found) for x, y in places]


def reaches(axes: Axes) -> list[float]:
    bars = [bar for bar in axes.collections if isinstance(bar, LineCollection)]
    segments = [np.asarray(segment) for bar in bars for segment in bar.get_segments()]
    return [float(np.ptp(segment[:, 0])) / 2 for segment in segments]


def test_every_value_stands_in_its_method_s_row_with_its_error() -> None:
    figure = dots_figure([DRIFT, COST | ORDER], ["FedAvg", "FedProx"], caption="± one error")
    first, second = figure.axes
    assert points(first) == [(3, 1), (1, 0)]
    assert reaches(first) == pytest.approx([0.5])
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["FedAvg", "FedProx"]
    assert not any(tick.get_visible() for tick in second.get_yticklabels())
    assert [x for x, _ in points(second)] == [-2, 4, 5]
    (_, cost), (_, order) = points(second)[1:]
    assert cost > 0 > order  # beside each other in one row
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cost", "second order"]
    assert [axes.get_title() for axes in figure.axes] == ["drift", "cost"]
    assert [text.get_text() for text in figure.texts] == ["± one error"]


def test_zero_is_marked_where_values_lie_on_both_sides() -> None:
    figure = dots_figure([DRIFT, COST], ["FedAvg", "FedProx"])
    marked = [[np.asarray(line.get_xdata()).tolist() for line in axes.lines] for axes in figure.axes]
    assert [[0, 0] in lines for lines in marked] == [False, True]


def test_nothing_is_not_drawn() -> None:
    with pytest.raises(UserError, match="no number to draw"):
        dots_figure([DRIFT], [])
