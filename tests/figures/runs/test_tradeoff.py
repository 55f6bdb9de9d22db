"""Methods as points: who shares a colour, which way arrows lead, and that intervals are 95 %."""

import matplotlib.colors
import numpy as np
import pytest

from fedscope.errors import UserError
from fedscope.figures.runs.drawings import MethodPoint, tradeoff_figure

PAIR = [
    MethodPoint("FedAvg", {"λ_max": (17.5, 0.5), "trace": (3460.0, 43.0)}, (34.0, 0.5)),
    MethodPoint("FedAvg+MAN", {"λ_max": (15.5, 0.3), "trace": (2097.0, 28.0)}, (42.5, 0.5)),
]
OTHER = MethodPoint("FedSAM", {"λ_max": (13.3, 0.2), "trace": (2327.0, 31.0)}, (35.0, 0.5))


def test_an_arrow_leads_from_a_method_to_what_adds_to_it() -> None:
    left, right = tradeoff_figure([*PAIR, OTHER], y_label="accuracy (%)").axes
    arrows = [text for text in left.texts if hasattr(text, "arrow_patch") and text.arrow_patch]
    assert [(arrow.xyann, arrow.xy) for arrow in arrows] == [((17.5, 34.0), (15.5, 42.5))]  # type: ignore[attr-defined]
    points = [line for line in right.lines if line.get_marker() == "o"]
    assert [[*np.asarray(line.get_xdata()), *np.asarray(line.get_ydata())] for line in points] == [
        [3460.0, 34.0], [2097.0, 42.5], [2327.0, 35.0],
    ]  # fmt: skip
    fills = [matplotlib.colors.to_hex(line.get_markerfacecolor()) for line in points]
    edges = [matplotlib.colors.to_hex(line.get_markeredgecolor()) for line in points]
    assert fills[0] == fills[2] == "#ffffff"
    assert fills[1] == edges[0] == edges[1] != edges[2]
    assert {text.get_text() for text in left.texts} >= {"FedAvg", "FedSAM"}


def test_bars_are_95_per_cent_and_all_of_them_are_inside() -> None:
    (axes, _) = tradeoff_figure(PAIR, y_label="accuracy (%)").axes
    across = [path for bars in axes.collections for path in bars.get_paths()]
    spans = [np.ptp(np.asarray(path.vertices), axis=0) for path in across]
    assert [spans[0][0], spans[1][1]] == pytest.approx([2 * 0.5, 2 * 0.5])
    for path in across:
        low, high = np.asarray(path.vertices).min(0), np.asarray(path.vertices).max(0)
        assert axes.get_xlim()[0] < low[0] <= high[0] < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < low[1] <= high[1] < axes.get_ylim()[1]


def test_what_has_no_place_is_refused() -> None:
    lost = MethodPoint("a", {"λ_max": (float("nan"), 0.0)}, (1.0, 0.0))
    with pytest.raises(UserError, match=r" a .*finite"):
        tradeoff_figure([lost], y_label="y")
    with pytest.raises(UserError, match="24 methods, not 0"):
        tradeoff_figure([], y_label="y")
