"""Numbers of methods as dots: a panel for each quantity, a row for each method."""

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedscope.errors import UserError
from fedscope.figures.runs.dots import Dots, dots_figure

DRIFT = Dots("drift", {"FedAvg": (3.0, 0.5), "FedProx": (1.0, None)})
COST = Dots("cost", {"FedAvg": (-2.0, 0.25), "FedProx": (4.0, 1.0)})
ORDER = Dots("second order", {"FedProx": (5.0, 1.0)})


def points(axes: Axes) -> list[tuple[float, float]]:
    found = [line.get_xydata() for line in axes.lines if line.get_marker() not in ("", "None")]
    return [(float(x), float(y)) for ((x, y),) in map(np.asarray, found)]


def reaches(axes: Axes) -> list[float]:
    bars = [bar for bar in axes.collections if isinstance(bar, LineCollection)]
    return [float(np.ptp(np.asarray(bar.get_segments()[0])[:, 0])) / 2 for bar in bars]


def test_every_value_stands_in_its_method_s_row_with_its_error() -> None:
    figure = dots_figure([[DRIFT], [COST, ORDER]], ["FedAvg", "FedProx"], caption="± one error")
    first, second = figure.axes
    assert points(first) == [(3, 1), (1, 0)]
    assert reaches(first) == pytest.approx([0.5])
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["FedAvg", "FedProx"]
    assert [tick.get_text() for tick in second.get_yticklabels()] == ["", ""]
    assert [x for x, _ in points(second)] == [-2, 4, 5]
    (_, cost), (_, order) = points(second)[1:]
    assert cost > 0 > order  # beside each other in one row
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cost", "second order"]
    assert {"drift", "cost", "± one error"} <= {text.get_text() for text in figure.texts}


def test_zero_is_marked_where_values_lie_on_both_sides() -> None:
    figure = dots_figure([[DRIFT], [COST]], ["FedAvg", "FedProx"])
    marked = [[np.asarray(line.get_xdata()).tolist() for line in axes.lines] for axes in figure.axes]
    assert [[0, 0] in lines for lines in marked] == [False, True]


def test_nothing_is_not_drawn() -> None:
    with pytest.raises(UserError, match="no number to draw"):
        dots_figure([[DRIFT]], [])
