"""A panel for each quantity: values with their intervals, or against the gap."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from fedscope.errors import UserError
from fedscope.figures.runs.row_dots import against_figure, values_figure
from fedscope.figures.text.sharpness_tables import correlation_table, differences_table, sharpness_table
from fedscope.records.sharpness_compared import compared, correlated
from fedscope.records.sharpness_record import SharpnessRecord
from tests.records.test_sharpness_record import quantity, record


def runs(count: int = 6) -> list[SharpnessRecord]:
    found = [record(float(i), 0.1 * i + 0.05) for i in range(count)]
    names = [{**one.checkpoint.to_json(), "run": f"run-{i}"} for i, one in enumerate(found)]
    return [one.edited(checkpoint=name) for one, name in zip(found, names, strict=True)]


def points(axes: Axes) -> list[tuple[float, float]]:
    lines = [line for line in axes.lines if line.get_marker() not in ("", "None", "_", "|")]
    return [(float(x), float(y)) for line in lines for x, y in np.asarray(line.get_xydata())]


def test_values_stand_beside_the_names() -> None:
    first, second = values_figure(runs(3)).axes
    assert points(first) == [(2.5, 2), (3.5, 1), (4.5, 0)]
    assert [text.get_text() for text in first.get_yticklabels()] == ["run-0@3", "run-1@3", "run-2@3"]
    assert not any(text.get_visible() for text in second.get_yticklabels())


def test_rounds_of_one_run_are_a_line() -> None:
    found = [
        one.edited(checkpoint={**one.checkpoint.to_json(), "run": "r", "round": 10 - i})
        for i, one in enumerate(runs(4))
    ]
    axes = values_figure(found).axes[0]
    (line,) = axes.lines
    assert np.asarray(line.get_xdata()).tolist() == [7, 8, 9, 10]
    assert np.asarray(line.get_ydata()).tolist() == [5.5, 4.5, 3.5, 2.5]
    assert axes.get_xlabel() == "round"


def test_against_the_gap_every_checkpoint_is_a_point() -> None:
    found = correlated(runs(), "gap")
    figure = against_figure(found)
    places = np.array(points(figure.axes[0]))
    np.testing.assert_allclose(places, [(2.5 + i, 0.1 * i + 0.05) for i in range(6)])
    written = [text.get_text() for text in figure.texts]
    assert any(text.startswith("τ 1.00 (") for text in written)
    assert any(text.startswith("τ −1.00 (") for text in written)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"run-{i}@3" for i in range(6)]
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.texts]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    below = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(box and figure.legends[0].get_window_extent().overlaps(box) for box in below)
    assert against_figure(correlated(runs(12), "gap")).legends == []  # more than looks
    plt.close("all")


def test_a_bar_of_the_gap_is_students_interval() -> None:
    few = [one.edited(gap=one.gap.to_json() | {"dof": 3.0}) for one in runs() if one.gap]
    axes = against_figure(correlated(few, "gap")).axes[0]
    bars = [bar for bar in axes.collections if isinstance(bar, LineCollection)]
    heights = [float(np.ptp(np.asarray(bar.get_segments()[0])[:, 1])) for bar in bars]
    assert max(heights) == pytest.approx(2 * 3.182446 * 0.01)
    plt.close("all")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="no quantity to draw"):
        values_figure([record(quantities=[])])
    with pytest.raises(UserError, match="at most 24 checkpoints"):
        values_figure(runs(25))


def test_the_tables_have_both_errors_and_the_cost() -> None:
    own = quantity("average_l2", 0.0, forwards=41, seconds=0.12, interval=[1.0, 4.0])
    single = sharpness_table([record(gap=0.25, quantities=[own])])
    assert single.columns == ("quantity", "with", "r@3", "passes", "seconds")
    assert single.rows[0] == ("average ℓ₂", "ρ 0.1", "2.50 ± 0.60 ± 0.50", "41 forwards", "0.12")
    assert single.rows[1][2] == "0.250 ± 0.010"
    assert single.rows[2][2] == "10.00%"
    pair = [runs(2)[0], runs(2)[1].edited(quantities=[quantity("average_l2", 1.0)])]
    table = sharpness_table(pair)
    assert table.columns == ("quantity", "with", "run-0@3", "run-1@3")
    assert table.rows[1] == ("trace", "ρ 0.1", "2.50 ± 0.60 ± 0.50", "–")
    other = differences_table(compared(pair))
    assert other
    assert other.rows == (("average ℓ₂", "1.000000: higher"),)
    reason = "3 dof: p 0.02, 0.12 among 6 verdicts"
    far = {"quantity": "trace", "to": "f0", "value": 4.0, "stderr": 1.0, "interval": None,
           "verdict": "undecided", "reason": reason}  # fmt: skip
    open_ = differences_table([pair[0], pair[1].edited(differences=[far])])
    assert open_
    assert open_.rows == (("trace", f"4.0 ± 1.0: undecided ({reason})"),)
    assert "dof degrees of freedom" in open_.notes[1]
    assert differences_table(pair) is None
    rows = correlation_table(correlated(runs(), "gap").correlations, "gap").rows
    assert [row[:2] for row in rows] == [("average ℓ₂", "1.00"), ("trace", "−1.00")]
    with pytest.raises(UserError, match="there is no record"):
        sharpness_table([])


CORRELATION: dict[str, tuple[str, Any]] = {
    "name": ("quantity", "trace"), "tau": ("τ", 0.25), "interval": ("95 % interval", [-0.5, 0.25]),
    "p": ("p", 0.123), "joint_p": ("p, all together", 0.456), "count": ("checkpoints", 17),
}  # fmt: skip


@pytest.mark.parametrize("field", CORRELATION)
def test_a_field_of_a_correlation_stands_in_its_own_column(field: str) -> None:
    column, value = CORRELATION[field]
    (first, *_) = correlated(runs(), "gap").correlations
    assert set(type(first).model_fields) == CORRELATION.keys()
    table, other = (correlation_table([one], "gap") for one in (first, first.edited(**{field: value})))
    cells = zip(table.columns, table.rows[0], other.rows[0], strict=True)
    assert [name for name, before, after in cells if before != after] == [column]


def test_a_noise_level_without_bound_is_no_fault() -> None:
    entries = [quantity(name, 0.0, value=None) for name in ("pac_bayes", "average_l2")]
    table = sharpness_table([record(quantities=entries)])
    assert [row[2] for row in table.rows] == ["unbounded", "not finite ± 0.60 ± 0.50"]
    assert any(note.startswith("unbounded: no noise") for note in table.notes)
    assert not any("unbounded" in note for note in sharpness_table([record()]).notes)
