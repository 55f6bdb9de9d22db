import numpy as np
import pytest

from fedscope.errors import UserError
from fedscope.figures.page import panels_figure
from fedscope.figures.panels import Line, Panel, Ticks
from fedscope.figures.runs.groups import rounds_figure
from fedscope.figures.style import curve_look

ROUNDS = np.arange(1.0, 61.0)
PAIRS = [
    Line(name, ROUNDS, ROUNDS + place, family=name[0]) for place, name in enumerate(("A", "A+M", "B", "B+M"))
]


def test_pairs_share_a_colour_and_differ_in_style() -> None:
    (axes,) = panels_figure([Panel(PAIRS, "round", "accuracy (%)")]).axes
    drawn = {line.get_label(): line for line in axes.lines}
    assert drawn["A"].get_color() == drawn["A+M"].get_color() != drawn["B"].get_color()
    assert [drawn[name].get_linestyle() for name in ("A", "A+M", "B", "B+M")] == ["--", "-", "--", "-"]


def test_lines_of_their_own_differ_in_both() -> None:
    lines = [Line(name, ROUNDS, ROUNDS) for name in "ABC"]
    (axes,) = panels_figure([Panel(lines, "round", "accuracy (%)")]).axes
    assert len({line.get_color() for line in axes.lines}) == 3
    assert {line.get_linestyle() for line in axes.lines} == {"-", "--"}  # any dashes read --
    assert all(line.get_marker() in ("", "None") for line in axes.lines)  # sixty points need none


def test_no_two_of_many_lines_look_alike() -> None:
    """Ten colours begin again; one pair shares its colour."""
    lines = [*PAIRS[:2], *(Line(str(place), ROUNDS, ROUNDS, family=str(place)) for place in range(20))]
    (axes,) = panels_figure([Panel(lines, "round", "accuracy (%)")]).axes
    looks = {(str(line.get_color()), str(line._dash_pattern)) for line in axes.lines}  # type: ignore[attr-defined]
    assert len(looks) == len(lines)
    assert len({str(curve_look(place)) for place in range(50)}) == 50


def test_more_lines_than_an_axes_can_show_are_grouped_by_their_ends() -> None:
    """Twelve stand in one pair of axes; of thirteen and a reference each panel has a third in colour."""
    lines = [Line(f"m{place}", ROUNDS, ROUNDS * (1 + place % 7) + place) for place in range(14)]
    assert len(rounds_figure(lines[:12], y_label="accuracy (%)").axes) == 1
    panels = rounds_figure(lines, y_label="accuracy (%)").axes
    named = []
    for axes in panels:
        legend = axes.get_legend()
        assert legend
        reference, *own = [text.get_text() for text in legend.get_texts()]
        assert reference == "m0"
        assert len(axes.lines) == 14  # the others in grey
        named.append(own)
    assert sorted(name for own in named for name in own) == sorted(line.label for line in lines[1:])
    ends = {line.label: line.y[-1] for line in lines}
    assert [ends[name] for own in named for name in own] == sorted(
        (ends[line.label] for line in lines[1:]), reverse=True
    )
    assert len({axes.get_ylim() for axes in panels}) == 1
    with pytest.raises(UserError, match="no finite value"):
        rounds_figure([Line(str(place), ROUNDS, ROUNDS * np.nan) for place in range(14)], y_label="y")


def test_the_legend_reads_row_by_row() -> None:
    (axes,) = panels_figure([Panel(PAIRS, "round", "accuracy (%)")]).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["A", "B", "A+M", "B+M"]  # columns of two


def test_bands_and_levels() -> None:
    spread = Line("s", np.array([0.01, 0.1]), np.array([50.0, 52.0]), np.array([1.0, 2.0]))
    level = Line("FedAvg", np.array([0.0]), np.array([49.0]), np.array([0.5]), level=True)
    (axes,) = panels_figure([Panel([spread, level], "α", "accuracy (%)", x=Ticks(scale="log"))]).axes
    low, high = axes.dataLim.intervaly
    assert (low, high) == (pytest.approx(48.5), pytest.approx(54.0))
    wide = Line("m", ROUNDS, ROUNDS, np.full(60, 3.0))
    (many,) = panels_figure([Panel([wide], "round", "accuracy (%)")]).axes
    assert many.dataLim.intervaly[1] == pytest.approx(63.0)


def test_nothing_finite_is_refused() -> None:
    with pytest.raises(UserError, match="no finite value"):
        panels_figure([Panel([Line("x", np.array([1.0]), np.array([np.nan]))], "a", "b")])


@pytest.mark.parametrize(("low", "high"), [(0.963, 0.977), (0.0631, 0.0889), (-0.012, 0.011)])
def test_ticks_at_the_side_leave_room_for_the_axis_name(low: float, high: float) -> None:
    lines = [Line("a", np.array([1.0, 2.0]), np.array([low, high]))]
    (axes,) = panels_figure([Panel(lines, "round", "cosine")]).axes
    bottom, top = axes.get_ylim()
    assert all(len(f"{tick:.6g}") <= 6 for tick in axes.get_yticks() if bottom <= tick <= top)
