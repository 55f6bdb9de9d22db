import io
import math

import numpy as np
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.figure import Figure

from fedscope.figures import style
from fedscope.figures.runs.partition_figure import legend_sizes, partition_figure

COUNTS = np.array([[4, 0, 16], [1, 9, 0]])


def drawn(figure: Figure) -> Figure:
    with style.paper_style():
        figure.savefig(io.BytesIO(), format="png", dpi=60)
    return figure


def many(clients: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).poisson(np.random.default_rng(1).gamma(0.3, 20, (clients, classes))) + 1


def bubbles(figure: Figure) -> PathCollection:
    return next(part for part in figure.axes[0].collections if isinstance(part, PathCollection))


def test_areas_are_proportional_to_counts_and_nothing_stands_for_none() -> None:
    dots = bubbles(partition_figure(COUNTS, ["a", "b", "c"]))
    places = [(int(x), int(y)) for x, y in np.asarray(dots.get_offsets()).tolist()]
    where = dict(zip(places, dots.get_sizes().tolist(), strict=True))
    assert where.keys() == {(0, 0), (0, 2), (1, 0), (1, 1)}  # (client, class)
    unit = where[1, 0]
    assert [where[0, 0], where[0, 2], where[1, 1]] == pytest.approx([4 * unit, 16 * unit, 9 * unit])


def test_the_legends_bubbles_are_on_the_same_scale() -> None:
    figure = partition_figure(many(10, 10), list("abcdefghij"))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    handles = [h for h in legend.legend_handles if h is not None and h.get_label() != "samples"]
    sizes = [int(str(handle.get_label()).replace(",", "")) for handle in handles]
    per_sample = bubbles(figure).get_sizes().max() / many(10, 10).max()
    for size, handle in zip(sizes, handles, strict=True):
        assert handle.get_markersize() == pytest.approx(math.sqrt(size * per_sample))  # type: ignore[attr-defined]


def test_legend_sizes() -> None:
    assert [legend_sizes(most) for most in (1, 4, 9, 87, 500, 4999)] == [
        [1], [2], [5], [5, 50], [5, 50, 500], [20, 200, 2000],
    ]  # fmt: skip


def test_bars_stack_to_each_clients_samples() -> None:
    figure = partition_figure(COUNTS, ["a", "b", "c"], kind="bars")
    (stacks,) = (part for part in figure.axes[0].collections if isinstance(part, PolyCollection))
    colors = [tuple(color) for color in np.asarray(stacks.get_facecolor()).tolist()]
    boxes = [path.get_extents() for path in stacks.get_paths()]
    held = {(round(box.x0 + 0.43), color): (box.y0, box.y1) for box, color in zip(boxes, colors, strict=True)}
    a, b, c = ((*color, 1.0) for color in style.class_colors(3))
    assert held == {(0, a): (0, 4), (0, c): (4, 20), (1, a): (0, 1), (1, b): (1, 10)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["bubbles", "bars"])
@pytest.mark.parametrize(("clients", "classes"), [(1, 1), (16, 10), (100, 100)])
def test_everything_stays_on_the_page(kind: str, clients: int, classes: int) -> None:
    names = [f"class number {i}" if classes <= 10 else str(i) for i in range(classes)]
    figure = drawn(partition_figure(many(clients, classes), names, kind=kind, title="a title"))  # type: ignore[arg-type]
    width, height = figure.get_size_inches()
    box = figure.get_tightbbox()
    assert (width, height <= 4) == (style.SINGLE_COLUMN, True)
    assert min(box.x0, box.y0) >= 0
    assert (box.x1 <= width + 0.01, box.y1 <= height) == (True, True)


@pytest.mark.parametrize("clients", [3, 20, 21, 100])
def test_ticks_are_clients(clients: int) -> None:
    for kind in ("bubbles", "bars"):
        figure = partition_figure(many(clients, 30), list(map(str, range(30))), kind=kind)
        ticks = figure.axes[0].get_xticks()
        assert set(ticks) <= set(range(clients))
        assert 3 <= len(ticks) <= 20


def test_bubbles_at_the_rim_are_whole_and_the_smallest_can_be_seen() -> None:
    counts = np.full((100, 100), 1)
    counts[0, 0] = counts[99, 99] = 100
    figure = drawn(partition_figure(counts, list(map(str, range(100)))))
    axes, sizes = figure.axes[0], bubbles(figure).get_sizes()
    radius = math.sqrt(sizes.max()) / 2 * figure.dpi / 72
    corner = axes.transData.transform([(0, 0), (99, 99)])
    frame = axes.get_window_extent()
    assert (corner[0] - radius >= (frame.x0, frame.y0)).all()
    assert (corner[1] + radius <= (frame.x1, frame.y1)).all()
    assert math.sqrt(sizes.min()) > 0.4  # points


def test_ten_classes_have_colours_of_their_own_and_more_have_a_map() -> None:
    assert len(set(style.class_colors(10))) == 10
    lightness = np.array(style.class_colors(100)) @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0).all()
    figure = partition_figure(many(5, 100), list(map(str, range(100))), kind="bars")
    assert (len(figure.legends), len(figure.axes)) == (0, 2)  # a colour bar


@pytest.mark.parametrize(("counts", "names"), [(COUNTS, ["a"]), (np.zeros((2, 3), dtype=int), list("abc"))])
def test_what_cannot_be_drawn(counts: np.ndarray, names: list[str]) -> None:
    with pytest.raises(ValueError, match="names for counts"):
        partition_figure(counts, names)
