"""Ratios as dots: where they stand, which methods share a colour, and what cannot be drawn."""

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from fedscope.errors import UserError
from studies.readings.ratios import RatioRow, ratios_figure

BOTH = ("FedAvg", "FedAvg+MAN")
ROWS = [
    RatioRow(
        "train, 32 samples",
        {"λ_max": dict(zip(BOTH, (0.5, 0.6), strict=True)), "trace": {"FedAvg": 1.2}},
        "9 %",
    ),
    RatioRow(
        "test, all samples",
        {"λ_max": dict(zip(BOTH, (0.9, 1.1), strict=True)), "trace": {"FedAvg": 1.0}},
        "91 %",
    ),
]


def test_a_dot_stands_at_its_ratio_in_the_row_of_its_condition() -> None:
    left, right = ratios_figure(ROWS, x_label="expected / printed").axes
    dots = [line for line in left.lines if line.get_marker() == "o"]
    assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == [0.5, 0.6, 0.9, 1.1]
    places = [round(float(np.asarray(dot.get_ydata())[0])) for dot in dots]
    assert places == [0, 0, 1, 1]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first is at the top
    assert [text.get_text() for text in left.get_yticklabels()] == [row.name for row in ROWS]
    assert {0.5, 1.0} <= {round(float(tick), 6) for tick in left.get_xticks()}
    assert len([line for line in right.lines if line.get_marker() == "o"]) == 2


def test_panels_have_one_scale_and_what_is_beyond_it_is_a_triangle() -> None:
    far = RatioRow("far", {"λ_max": {"FedAvg": 0.01, "FedAvg+MAN": 90.0}, "trace": {"FedAvg": 1.0}})
    left, right = ratios_figure([*ROWS * 8, far], x_label="x").axes
    assert left.get_xlim() == right.get_xlim()
    low, high = left.get_xlim()
    ends = {str(line.get_marker()): float(np.asarray(line.get_xdata())[0]) for line in left.lines}
    assert low < ends["<"] == pytest.approx(0.5)
    assert high > ends[">"] == pytest.approx(1.2)
    inside = [line for line in left.lines if line.get_marker() == "o"]
    assert len(inside) == 4 * 8


def test_what_adds_to_a_method_is_filled_in_its_colour() -> None:
    left, _ = ratios_figure(ROWS, x_label="x").axes
    alone, added, *_ = [line for line in left.lines if line.get_marker() == "o"]
    assert matplotlib.colors.to_hex(alone.get_markerfacecolor()) == "#ffffff"
    assert added.get_markerfacecolor() == added.get_markeredgecolor() == alone.get_markeredgecolor()


def test_names_and_notes_are_inside_the_figure() -> None:
    long = [
        RatioRow(
            "a reading with a name of many words, augmented, with weight decay", ROWS[0].ratios, "< 0.1 %"
        )
    ]
    figure = ratios_figure(long, x_label="x", note="share")
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw(renderer)
    edge = figure.bbox.width
    for axes in figure.axes:
        for text in [*axes.texts, *axes.get_yticklabels()]:
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0
            assert box.x1 <= edge


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(UserError, match="no ratio"):
        ratios_figure([], x_label="x")
