import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text
from mpl_toolkits.mplot3d import Axes3D

from fedscope.figures import style
from fedscope.figures.figure_kinds import SurfaceKind
from fedscope.figures.surface.marks import has_distances, kind_and_numbers, short_labels
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.landscape.surfaces.surface_results import Mark
from tests.figures.cases import bowl, drift, trajectory


def _drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=100)
    return figure


def _labels(axes: Axes) -> list[Text]:
    return [text for text in axes.texts if text.get_gid()]


def _flat(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes[:-1] if not isinstance(axes, Axes3D)]


def test_names_of_one_kind_become_numbers() -> None:
    marks = drift(3).marks
    assert kind_and_numbers(marks) == ("client", {1: 0, 2: 1, 3: 2})
    assert short_labels(marks) == ["global", "0", "1", "2"]
    apart = (Mark("fedavg@30", (0.0, 0.0), 0.0), Mark("client 3", (1.0, 0.0), 0.0))
    assert short_labels(apart) == ["fedavg@30", "client 3"]


def test_distances_are_those_that_rounding_does_not_explain() -> None:
    marks = (Mark("a", (0.0, 0.0), 1e-9), Mark("b", (1.0, 2.0), 2e-9))
    assert not has_distances(marks)
    assert not has_distances(())
    assert has_distances((*marks, Mark("c", (1.0, 1.0), 0.01)))


@pytest.mark.parametrize("kind", ["contour", "heat"])
@pytest.mark.parametrize("clients", [16, 40])
def test_all_clients_are_named_and_no_label_meets_another(kind: SurfaceKind, clients: int) -> None:
    figure = _drawn(landscape_figure([drift(clients)], ["fedavg"], kind=kind))
    plane = _flat(figure)[0]
    labels = _labels(plane)
    assert {text.get_text() for text in labels} == {"global", *map(str, range(clients))}
    boxes = [text.get_window_extent() for text in labels]
    frame = plane.get_window_extent()
    for i, box in enumerate(boxes):
        # the halo reaches over the letters, so their own boxes must only not overlap
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1
    markers = [line for line in plane.lines if line.get_marker() in ("o", "*")]
    assert len(markers) == clients + 1


def test_marks_stand_at_their_projections() -> None:
    surface = drift(4)
    plane = _flat(landscape_figure([surface], ["fedavg"], kind="contour"))[0]
    points = [
        plane.transLimits.inverted().transform(np.ravel(line.get_xydata()))
        for line in plane.lines
        if line.get_marker() in ("o", "*")
    ]
    np.testing.assert_allclose(points, [mark.at for mark in surface.marks], atol=1e-9)


def test_a_path_shows_its_ends_rounds_and_direction() -> None:
    surface = trajectory(30)
    figure = _drawn(landscape_figure([surface], ["fedavg"], kind="contour"))
    plane, distances = _flat(figure)
    names = [text.get_text() for text in _labels(plane)]
    assert names[:2] == ["30", "1"]
    assert {"10", "20"} <= set(names)
    heads = [line for line in plane.lines if isinstance(line.get_marker(), Path)]
    assert len(heads) > 5
    first = heads[0]
    here, there = (np.array(plane.transLimits.transform(surface.marks[i].at)) for i in (0, 1))
    frame = plane.get_window_extent()
    step = (there - here) * (frame.width, frame.height)
    np.testing.assert_allclose(np.ravel(first.get_xydata()), (here + there) / 2, atol=1e-9)
    marker = first._marker  # type: ignore[attr-defined]
    outline = marker.get_transform().transform(marker.get_path().vertices[:3])
    corners = outline - outline.mean(axis=0)
    reach = np.hypot(*corners.T)
    tip = corners[reach.argmax()]
    assert reach.max() > 1.4 * np.median(reach)  # one corner is the tip, by far
    np.testing.assert_allclose(tip / np.hypot(*tip), step / np.hypot(*step), atol=1e-9)
    path = np.array([plane.transLimits.transform(mark.at) for mark in surface.marks])
    steps = np.concatenate([np.linspace(a, b, 20) for a, b in pairwise(path)])
    values = [text for text in plane.texts if not text.get_gid() and text.get_visible()]
    assert values  # of contour lines, and none is struck through
    for text in values:
        spot = plane.transLimits.transform(text.get_position())
        assert np.hypot(*(steps - spot).T).min() * plane.bbox.width / figure.dpi * 72 > 5
    (line,) = distances.lines
    np.testing.assert_allclose(np.ravel(line.get_xdata()), np.arange(1, 31))
    np.testing.assert_allclose(np.ravel(line.get_ydata()), [mark.distance for mark in surface.marks])
    assert distances.get_xlabel() == "round"


def test_named_ends_of_a_path_look_alike_in_both_panels() -> None:
    surface = trajectory(8)
    names = ["start", *(f"step {i}" for i in range(1, 7)), "client 0"]
    marks = [replace(mark, label=name) for mark, name in zip(surface.marks, names, strict=True)]
    figure = _drawn(landscape_figure([replace(surface, marks=tuple(marks))], ["fedavg"], kind="contour"))
    plane, distances = _flat(figure)
    drawn = [line.get_marker() for line in plane.lines if line.get_marker() in ("o", "s", "*")]
    assert drawn == ["s", *"oooooo", "*"]
    assert [line.get_marker() for line in distances.lines] == drawn


def test_networks_in_the_plane_need_no_panel_of_distances() -> None:
    surface = drift(3)
    inside = replace(surface, marks=tuple(replace(mark, distance=0.0) for mark in surface.marks))
    assert len(_flat(landscape_figure([inside], ["a"], kind="contour"))) == 1
    both = _flat(landscape_figure([inside, surface], ["a", "b"], kind="contour"))
    assert len(both) == 4
    assert both[1].get_ylim() == both[3].get_ylim()


def test_only_planes_without_marks_have_a_dot_at_their_origin_and_a_centre_loss() -> None:
    figure = landscape_figure([bowl(), drift(3)], ["a", "b"], kind="contour")
    first, second = [axes for axes in _flat(figure) if axes.get_xlabel() != "client"][:2]
    assert len(first.lines) == 1
    texts = [text.get_text() for text in figure.texts]
    assert sum("centre loss" in text for text in texts) == 1
    assert second.lines


def test_of_a_path_that_grows_the_frame_stays(  # as frames of a film must
) -> None:
    surface = trajectory(6)
    frames = [landscape_figure([surface], ["a"], kind="contour", reached=i) for i in (1, 6)]
    first, last = (_flat(frame) for frame in frames)
    assert frames[0].get_size_inches().tolist() == frames[1].get_size_inches().tolist()
    assert first[0].get_xlim() == last[0].get_xlim()
    assert first[1].get_ylim() == last[1].get_ylim()
    assert len(first[1].lines[0].get_xdata()) == 1  # type: ignore[arg-type]
    assert [text.get_text() for text in _labels(first[0])] == ["1"]
