import io
import math
import re
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Affine2D
from mpl_toolkits.mplot3d import Axes3D

from fedscope.errors import UserError
from fedscope.figures import style
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.landscape.surfaces.surface_results import Axis, Surface
from tests.figures.cases import bowl, drift

NAMES = ["FedAvg", "FedProx", "FedDyn", "FedDC", "SCAFFOLD", "FedAlign"]


def _spaces(figure: Figure) -> list[Axes3D]:
    return [axes for axes in figure.axes if isinstance(axes, Axes3D)]


def _contours(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if not isinstance(axes, Axes3D)][:-1]


def _bar(figure: Figure) -> Axes:
    return figure.axes[-1]


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def _draw(figure: Figure) -> None:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=60)


def _lay_out(figure: Figure) -> None:
    """Place everything as at the figure's own resolution, in which extents are asked for."""
    with style.paper_style():
        figure.draw_without_rendering()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_every_count_draws_inside_the_page_without_overlap(count: int) -> None:
    figure = landscape_figure([bowl(curvature=10.0 / (k + 1)) for k in range(count)], NAMES[:count])
    _draw(figure)
    spaces, contours = _spaces(figure), _contours(figure)
    assert len(spaces) == len(contours) == count
    boxes = [axes.get_position() for axes in [*contours, _bar(figure)]]
    assert all(0 < box.x0 < box.x1 < 1 and 0 < box.y0 < box.y1 < 1 for box in boxes)
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])
    assert figure.get_figwidth() in (style.SINGLE_COLUMN, style.WIDE_COLUMN, style.DOUBLE_COLUMN)
    assert figure.get_figheight() < 9.5


@pytest.mark.parametrize("floor", [0.0101, 0.0118, 0.0137, 0.0158, 0.0172, 0.0195])
def test_the_minimum_is_filled(floor: float) -> None:
    """Rounding of a logarithm does not carry it below the lowest band, where nothing is drawn."""
    plane = bowl(points=21)
    line = plane.axes[0].values
    loss = floor + (line[:, None] - 0.53) ** 2 + (line[None, :] + 0.53) ** 2  # lowest between the points
    figure = landscape_figure([replace(plane, loss=loss)], ["FedAvg"], kind="contour")
    buffer = io.BytesIO()
    with style.paper_style():
        figure.savefig(buffer, format="png", dpi=200)
    buffer.seek(0)
    pixels = plt.imread(buffer)
    height, width, _ = pixels.shape
    box = _contours(figure)[0].get_position()
    column = int(width * (box.x0 + box.width * (1 + 0.53) / 2))
    row = int(height * (1 - box.y0 - box.height * (1 - 0.53) / 2))
    assert pixels[row - 9 : row + 10, column - 9 : column + 10, :3].min(axis=2).max() < 0.95


def test_limits_camera_heights_and_colours_are_shared() -> None:
    figure = landscape_figure([bowl(curvature=5.0, span=0.5), bowl(curvature=2.0)], NAMES[:2])
    contours, spaces = _contours(figure), _spaces(figure)
    assert {axes.get_xlim() for axes in contours} == {(-1.0, 1.0)}
    assert {axes.get_ylim() for axes in contours} == {(-1.0, 1.0)}
    for read in ("get_xlim", "get_ylim", "get_zlim"):
        assert len({tuple(getattr(axes, read)()) for axes in spaces}) == 1
    assert len({(axes.elev, axes.azim) for axes in spaces}) == 1
    low, high = 0.2, 0.2 + 2.0
    assert spaces[0].get_zlim() == pytest.approx((math.log10(low), math.log10(high)))
    fills = [axes.collections[0] for axes in contours]
    assert [fill.norm.vmin for fill in fills] == pytest.approx([low, low])
    assert [fill.norm.vmax for fill in fills] == pytest.approx([high, high])
    assert _bar(figure).get_xlim() == pytest.approx((low, high))


def test_titles_centre_loss_and_captions_stand_over_their_panel() -> None:
    surfaces = [bowl(floor=0.25), bowl(floor=0.5)]
    texts = _texts(landscape_figure(surfaces, ["FedAvg", "$pecial"], captions=["λ_max 12", "ε₀ 3×10⁴"]))
    assert {"FedAvg", r"\$pecial", "centre loss 0.25", "centre loss 0.5"} <= set(texts)
    assert {r"$\lambda_{\max}$ 12", "ε$_{0}$ 3×10$^{4}$"} <= set(texts)
    assert texts.count("ε$_{0}$") >= 4  # both panels, both rows


def test_a_metrics_value_at_the_centre_stands_there_with_its_error_and_unit() -> None:
    own = bowl()
    grids = {"MAN term": own.loss, "accuracy": own.loss / 100}
    surface = replace(
        own,
        metrics=grids,
        metrics_stderr={name: torch.full_like(own.loss, 0.0025) for name in grids},
        center_metrics={"MAN term": 0.17, "accuracy": 0.513},
    )
    for metric, text in (
        ("MAN term", "centre MAN term 0.1700 ± 0.0025"),
        ("accuracy", "centre accuracy 51.30 ± 0.25 %"),
    ):
        figure = landscape_figure([surface], NAMES[:1], metric=metric)
        texts = _texts(figure)
        assert text in texts
        assert "loss" not in " ".join(texts)
    figure = landscape_figure([replace(surface, center_metrics={})], NAMES[:1], metric="accuracy")
    assert not [text for text in _texts(figure) if text.startswith("centre")]


def test_points_that_are_not_finite_are_hatched_counted_and_left_out() -> None:
    figure = landscape_figure([bowl(), bowl(bad=5)], NAMES[:2])
    whole, broken = _contours(figure)
    assert [patch.get_hatch() for patch in whole.patches] == []
    assert all(patch.get_hatch() for patch in broken.patches)
    assert "5 of 121 points not finite" in _texts(figure)
    sizes = [len(axes.collections[0].get_facecolor()) for axes in _spaces(figure)]
    assert sizes == [100, 95]  # a row of five points at the edge takes five of the facets


def test_a_checkpoint_without_any_finite_loss_is_drawn_as_such() -> None:
    figure = landscape_figure([bowl(), replace(bowl(bad=121), center_loss=math.nan)], NAMES[:2])
    _draw(figure)
    assert "121 of 121 points not finite" in _texts(figure)
    assert "the centre loss is not finite" in _texts(figure)


def test_tall_walls_are_cut_and_the_figure_says_so() -> None:
    figure = landscape_figure([bowl(curvature=1e6), bowl(curvature=5.0)], NAMES[:2])
    note = [text for text in _texts(figure) if "cut at" in text]
    assert note == ["Surfaces and colours are cut at 5; the highest loss is $10^{6}$."]
    assert _spaces(figure)[0].get_zlim() == pytest.approx((math.log10(0.2), math.log10(5.0)))
    calm = landscape_figure([bowl(), bowl(curvature=5.0)], NAMES[:2])
    assert not any("cut at" in text for text in _texts(calm))


def test_a_linear_scale_is_named_on_the_colour_bar() -> None:
    figure = landscape_figure([bowl(floor=-1.0)], ["a user's loss"])
    _draw(figure)
    assert _bar(figure).get_xlabel() == "loss (linear scale: some losses are not positive)"


@pytest.mark.parametrize("floor", [0.7, 0.0, -1.0])
def test_flat_surfaces_draw(floor: float) -> None:
    figure = landscape_figure([bowl(curvature=0.0, floor=floor)], ["flat"])
    _draw(figure)
    low, high = _bar(figure).get_xlim()
    assert low < floor < high


def test_the_first_axis_runs_to_the_right() -> None:
    surface = bowl()
    loss = 1.0 + surface.axes[0].values[:, None].expand(11, 11) * 0.5
    figure = landscape_figure([replace(surface, loss=loss)], ["slope"])
    lines = _contours(figure)[0].collections[1]
    spread = [np.ptp(path.vertices, axis=0) for path in lines.get_paths() if np.size(path.vertices)]
    assert spread
    assert all(across == pytest.approx(0, abs=1e-9) and along == 2.0 for across, along in spread)


def test_grids_that_cannot_be_drawn_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(UserError, match="--grid"):
        landscape_figure([bowl(points=1)], ["one point"])
    with pytest.raises(UserError, match="--span"):
        landscape_figure([bowl(span=0.0)], ["no span"])
    for count in (0, 9):
        with pytest.raises(UserError, match="1 to 8"):
            landscape_figure([bowl()] * count, ["x"] * count)
    with pytest.raises(ValueError):
        landscape_figure([bowl()], ["one", "two"])


def test_kinds_draw_their_rows_only() -> None:
    surface = landscape_figure([bowl(), bowl()], NAMES[:2], kind="surface")
    assert (len(_spaces(surface)), len(_contours(surface))) == (2, 0)
    kinds: tuple[SurfaceKind, ...] = ("contour", "heat")
    for kind in kinds:
        figure = landscape_figure([bowl(), bowl()], NAMES[:2], kind=kind)
        assert (len(_spaces(figure)), len(_contours(figure))) == (0, 2)
        assert figure.get_figheight() < 3.5


def test_long_names_of_axes_fit_their_panels() -> None:
    name = "distance towards fedavg+man-cifar100@client3 (round 30)"
    surface = bowl()
    axes = tuple(replace(axis, name=name) for axis in surface.axes)
    figure = landscape_figure([replace(surface, axes=axes)] * 3, NAMES[:3])
    _draw(figure)
    for panel in _contours(figure):
        frame = panel.get_window_extent()
        assert panel.xaxis.label.get_window_extent().width <= 1.05 * frame.width
        assert panel.yaxis.label.get_window_extent().height <= 1.05 * frame.height


def test_long_ticks_leave_their_power_of_ten_to_the_names() -> None:
    small = _scaled(drift(3), 1e-4)
    figure = landscape_figure([small, _scaled(small, 1.1)], NAMES[:2])
    _lay_out(figure)
    page = figure.bbox
    for axes in figure.axes[:-1]:
        for axis in (axes.xaxis, axes.yaxis):
            if (name := axis.label).get_visible() and name.get_text() != "client":
                assert re.search(r", in 10\$\^\{-[45]\}\$$", name.get_text())
                box = name.get_window_extent()
                assert page.x0 <= box.x0 < box.x1 <= page.x1
    plane = _contours(figure)[0]
    ticks = [text.get_text() for text in plane.get_yticklabels()]
    assert max(map(len, ticks)) <= 5
    assert [float(text.replace("−", "-")) for text in ticks] == pytest.approx(1e4 * plane.get_yticks())


def _scaled(surface: Surface, factor: float) -> Surface:
    marks = [
        replace(mark, at=tuple(factor * x for x in mark.at), distance=factor * mark.distance)
        for mark in surface.marks
    ]
    axes = tuple(replace(axis, values=factor * axis.values) for axis in surface.axes)
    return replace(surface, axes=axes, marks=tuple(marks))


def test_a_second_axis_of_another_name_is_named_at_its_own_panel() -> None:
    surface = bowl()
    other = replace(surface, axes=(surface.axes[0], replace(surface.axes[1], name="axis 2 (26.9 %)")))
    figure = landscape_figure([surface, surface, other], NAMES[:3])
    _lay_out(figure)
    labels = [panel.yaxis.label for panel in _contours(figure)]
    assert [label.get_visible() for label in labels] == [True, False, True]
    room = _contours(figure)[1].get_window_extent().x1
    assert labels[2].get_window_extent().x0 > room


@pytest.mark.parametrize("low", [-1.3, -0.2, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("name", ["axis 2 (2.05 %)", "distance at right angles"])
@pytest.mark.parametrize("count", [1, 3])
def test_names_of_axes_in_space_clear_the_ticks(low: float, name: str, count: int) -> None:
    surface = bowl()
    axes = tuple(Axis(name, axis.values + low) for axis in surface.axes)
    figure = landscape_figure([replace(surface, axes=axes)] * count, NAMES[:count], kind="surface")
    _lay_out(figure)
    assert len(_spaces(figure)) == count
    for space in _spaces(figure):
        flat = (space.xaxis, space.yaxis)
        # to ask for the tick labels would put them back where they are on a plane
        ticks = [tick.label1.get_window_extent() for axis in flat for tick in axis.majorTicks]
        names = [_outline(axis.label) for axis in flat]
        assert not any(name.intersects_bbox(tick) for name in names for tick in ticks)
        assert max(name.get_extents().x1 for name in names) <= figure.bbox.x1


def _outline(text: Text) -> Path:
    """The rectangle around a turned text."""
    middle, turn = text.get_window_extent(), text.get_rotation()
    text.set_rotation(0)
    box = text.get_window_extent()
    text.set_rotation(turn)
    x, y = (middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2
    moved = (
        Affine2D().translate(-(box.x0 + box.x1) / 2, -(box.y0 + box.y1) / 2).rotate_deg(turn).translate(x, y)
    )
    return Path(box.corners()[[0, 1, 3, 2, 0]]).transformed(moved)


def test_ticks_do_not_meet_at_the_corner_in_space_and_its_left_edge_is_drawn() -> None:
    figure = landscape_figure([bowl()] * 4, NAMES[:4])
    _lay_out(figure)
    assert len(_spaces(figure)) == 4
    for space in _spaces(figure):
        assert list(space.get_xticks()) == [-1, 0, 1]
        assert list(space.get_yticks()) == [0, 1]
        assert space.xaxis.pane.get_closed()


@pytest.mark.parametrize("kind", ["both", "surface"])
def test_names_in_space_stay_within_their_panel(kind: SurfaceKind) -> None:
    own = bowl()
    axes = tuple(Axis(f"eigenvector {i}", axis.values) for i, axis in enumerate(own.axes, 1))
    figure = landscape_figure([replace(own, axes=axes)] * 4, NAMES[:4], kind=kind)
    _lay_out(figure)
    boxes = [
        axis.label.get_window_extent() for space in _spaces(figure) for axis in (space.xaxis, space.yaxis)
    ]
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[i + 1 :])
    room = 6.0 * figure.dpi / 72  # points
    assert all(boxes[i + 1].x0 - boxes[i].x1 > room for i in range(1, len(boxes) - 1, 2))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize(("kind", "norm"), [("eigenvector", "unit norm"), ("random", "filter-normalised")])
def test_an_axis_tells_the_norm_of_its_direction(kind: str, norm: str) -> None:
    own = bowl()
    axes = tuple(Axis(f"{kind} {i}", axis.values) for i, axis in enumerate(own.axes, 1))
    surface = replace(own, axes=axes, directions="random" if kind == "random" else "eigen")
    (plane,) = _contours(landscape_figure([surface], ["a"], kind="contour"))
    assert (plane.get_xlabel(), plane.get_ylabel()) == (f"{kind} 1 ({norm})", f"{kind} 2 ({norm})")
    assert f"Both directions: {norm}." in _texts(landscape_figure([surface], ["a"], kind="surface"))


def test_a_unit_is_as_long_on_both_axes_where_they_have_the_same() -> None:
    own = bowl()
    narrow = replace(own, axes=(own.axes[0], Axis("axis 2", 0.4 * own.axes[1].values)))
    for surface, share in ((narrow, 0.4), (replace(narrow, directions="random"), 1.0), (own, 1.0)):
        (plane,) = _contours(landscape_figure([surface], ["a"], kind="contour"))
        box = plane.get_window_extent()
        assert box.height / box.width == pytest.approx(share)


def test_contours_are_labelled_upright_and_legibly() -> None:
    surface = bowl(curvature=5.0)
    (plane,) = _contours(landscape_figure([surface], ["a"], kind="contour"))
    labels = [text for text in plane.texts if text.get_visible()]
    assert len(labels) >= 3
    assert {text.get_rotation() for text in labels} == {0.0}
    assert all(float(text.get_fontsize()) >= style.SMALL_SIZE for text in labels)


def test_contours_of_few_points_are_smooth_and_say_so() -> None:
    surface = bowl(curvature=5.0)
    figure = landscape_figure([surface], ["a"], kind="contour")
    (plane,) = _contours(figure)
    assert "Contours are interpolated between 11 × 11 points." in _texts(figure)
    lines = next(one for one in plane.collections if len(one.get_facecolor()) == 0)
    radii = [np.hypot(*np.asarray(path.vertices).T) for path in lines.get_paths() if np.size(path.vertices)]
    closed = [radius for radius in radii if radius.max() < 0.95]
    assert closed
    assert all(np.ptp(radius) < 0.01 for radius in closed)  # polygons between eleven points have 0.02
    broken = landscape_figure([bowl(bad=2)], ["a"], kind="contour")
    assert not any("interpolated" in text for text in _texts(broken))


def test_seven_checkpoints_share_one_page_and_one_colour_bar() -> None:
    figure = landscape_figure([bowl()] * 7, [*NAMES, "MOON"])
    assert len(_contours(figure)) == 7
    assert figure.get_figheight() < 9.5
    boxes = [axes.get_position() for axes in _contours(figure)]
    assert boxes[4].x0 - boxes[0].x0 == pytest.approx(boxes[3].x1 - boxes[6].x1)  # the last band is centred


def test_a_heat_map_has_a_cell_per_point_and_holes_where_not_finite() -> None:
    figure = landscape_figure([bowl(bad=5)], ["a"], kind="heat")
    _draw(figure)
    (axes,) = _contours(figure)
    cells: Any = np.ma.masked_invalid(np.ma.asarray(axes.collections[0].get_array()))
    np.testing.assert_allclose(cells.filled(-1)[0, 5:], bowl().loss[5:, 0])
    assert int(np.ma.getmaskarray(cells).sum()) == 5
    assert "5 of 121 points not finite" in _texts(figure)


def test_an_accuracy_has_its_own_scale_in_percent() -> None:
    surface = replace(bowl(), metrics={"accuracy": 0.9 - 0.05 * bowl().loss})
    figure = landscape_figure([surface], ["a"], metric="accuracy")
    _draw(figure)
    assert _bar(figure).get_xlabel() == "accuracy (%)"
    low, high = _spaces(figure)[0].get_zlim()
    assert (low, high) == pytest.approx((0.9 - 0.05 * 10.2, 0.89))
    assert {"50", "60", "70", "80"} & set(_texts(figure))
    with pytest.raises(UserError, match="loss, accuracy"):
        landscape_figure([surface], ["a"], metric="f1")


def test_an_axis_is_named_again_where_it_tells_something_else() -> None:
    def explained(share: str) -> Surface:
        surface = drift(4)
        names = ("axis 1 (90 %)", f"axis 2 ({share} %)")
        axes = tuple(Axis(name, axis.values) for name, axis in zip(names, surface.axes, strict=True))
        return replace(surface, axes=axes)

    figure = landscape_figure(
        [explained(share) for share in ("5", "5", "7")], ["x", "y", "z"], kind="contour"
    )
    shown = [axes.get_ylabel() for axes in figure.axes if axes.yaxis.label.get_visible()]
    assert [name for name in shown if name.startswith("axis")] == ["axis 2 (5 %)", "axis 2 (7 %)"]
