"""Every part of a panel stands in matplotlib's axes where its numbers are."""

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from fedscope.figures.panel_axes import draw_panel
from fedscope.figures.panels import Bars, Dots, Hatched, Line, Matrix, Panel, Part, RuledLine, Stems

X, Y = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 6.0])
REACH = np.array([[0.5, 0.25, 1.0], [2.0, 1.0, 0.5]])  # below, above
UP = [[[x, y - low], [x, y + high]] for x, y, low, high in zip(X, Y, *REACH, strict=True)]
ACROSS = [[[x - low, y], [x + high, y]] for x, y, low, high in zip(X, Y, *REACH, strict=True)]


def axes_of(*parts: Part, **more: Any) -> Any:
    axes = Figure().add_subplot()
    draw_panel(axes, Panel(parts, **more))
    return axes


def segments(axes: Any) -> list[Any]:
    bars = [found for found in axes.collections if isinstance(found, LineCollection)]
    return [np.asarray(piece).tolist() for some in bars for piece in some.get_segments()]


@pytest.mark.parametrize("kind", [{"marker": None}, {"points": True}])
def test_bars_at_points_reach_below_and_above(kind: dict[str, Any]) -> None:
    axes = axes_of(Line("a", X, Y, REACH, **kind))
    assert segments(axes) == UP
    assert np.asarray(axes.lines[0].get_xydata()).tolist() == np.transpose([X, Y]).tolist()


def test_a_band_without_points_is_filled_between_its_ends() -> None:
    axes = axes_of(Line("a", X, Y, REACH, marker=""))
    (band,) = (found for found in axes.collections if isinstance(found, PolyCollection))
    corners = {tuple(corner) for corner in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert corners >= {(x, y) for piece in UP for x, y in piece}


def test_a_level_is_drawn_across_with_its_band() -> None:
    axes = axes_of(Line("a", X[:1], Y[:1], REACH[:, :1], level=True))
    assert set(axes.lines[0].get_ydata()) == {3.0}
    (band,) = axes.patches
    assert (band.get_y(), band.get_height()) == (2.5, 2.5)


def test_dots_have_their_intervals_along_either_axis() -> None:
    axes = axes_of(Dots(X, Y, across=REACH, up=REACH))
    assert segments(axes) == [*ACROSS, *UP]
    known = REACH.copy()
    known[1, 1] = np.nan
    assert segments(axes_of(Dots(X, Y, up=known))) == [UP[0], UP[2]]


@pytest.mark.parametrize(("lying", "ends"), [(False, UP), (True, [[end[::-1] for end in one] for one in UP])])
def test_bars_are_as_long_as_their_numbers(lying: bool, ends: list[Any]) -> None:
    axes = axes_of(Bars(X, Y, REACH, lying=lying))
    assert [bar.get_width() if lying else bar.get_height() for bar in axes.patches] == Y.tolist()
    assert segments(axes) == ends


def test_stems_stripes_and_ruled_lines() -> None:
    axes = axes_of(Stems(X, Y, Y + 1, "k"), Hatched(X, X + 0.5), RuledLine(2.5), RuledLine(7.0, upright=True))
    assert segments(axes) == [[[x, y], [x, y + 1]] for x, y in zip(X, Y, strict=True)]
    assert [(one.get_x(), one.get_width()) for one in axes.patches] == [(x, 0.5) for x in X]
    across, upright = axes.lines
    assert (set(across.get_ydata()), set(upright.get_xdata())) == ({2.5}, {7.0})


def test_a_matrix_has_its_first_row_on_top_and_hatches_what_is_missing() -> None:
    values = np.array([[np.nan, 1.0, np.nan], [2.0, np.nan, 3.0], [4.0, 5.0, np.nan]])
    axes = axes_of(Matrix(values, ("0", "1", "2"), 1.0, 5.0))
    (mesh,) = (found for found in axes.collections if isinstance(found, QuadMesh))
    assert np.ma.getmaskarray(np.ma.asarray(mesh.get_array())).tolist() == np.isnan(values).tolist()
    assert mesh.get_clim() == (1.0, 5.0)
    assert axes.get_ylim() == (2.5, -0.5)
    (missing,) = (one for one in axes.patches if isinstance(one, Rectangle))
    assert missing.get_xy() == (1.5, -0.5)  # row 0, column 2
    assert len([line for line in axes.lines if isinstance(line, Line2D)]) == 3  # the diagonal is crossed out


def test_what_is_no_part_is_told() -> None:
    with pytest.raises(TypeError, match="str is no part of a panel"):
        axes_of("a line")  # type: ignore[arg-type]
