import pytest
import torch

from fedscope.errors import UserError
from fedscope.landscape.surfaces.directions import Directions, grid_values
from fedscope.landscape.surfaces.surface_results import Mark

X = torch.ones(2)
PLAIN = Directions("eigen", (X, X), ("x", "y"))
WINDOW = Directions("pca", (X, X), ("x", "y"), limits=((-1.0, 3.0), (0.0, 2.0)))
ENDS = (Mark("A", (0.0,), 0.0), Mark("B", (1.0,), 0.0))
LINE = Directions("line", (X,), ("α",), marks=ENDS, limits=((-0.125, 1.125),))


def lists(*arguments: object, **options: object) -> list[list[float]]:
    return [axis.tolist() for axis in grid_values(*arguments, **options)]  # type: ignore[arg-type]


def test_axes_run_from_minus_span_to_span_or_over_their_own_range() -> None:
    assert lists(PLAIN, grid=3, span=0.5) == [[-0.5, 0, 0.5]] * 2
    assert lists(PLAIN, grid=(3, 5)) == [[-1, 0, 1], [-1, -0.5, 0, 0.5, 1]]
    assert lists(WINDOW, grid=3) == [[-1, 1, 3], [0, 1, 2]]
    assert lists(WINDOW, grid=3, span=2.0) == [[-3, 1, 5], [-1, 1, 3]]


def test_a_single_point_lies_at_the_origin() -> None:
    assert lists(WINDOW, grid=(1, 3)) == [[0], [0, 1, 2]]
    assert lists(PLAIN, grid=1) == [[0], [0]]


@pytest.mark.parametrize("points", [11, 21, 31, 41, 7, 12, 30])
def test_the_ends_of_a_line_are_points_of_it(points: int) -> None:
    (values,) = grid_values(LINE, grid=points)
    assert len(values) == points
    assert {0.0, 1.0} <= set(values.tolist())
    assert bool((values.diff() > 0).all())
    if points % 10 == 1:
        torch.testing.assert_close(values, torch.linspace(-0.125, 1.125, points).double())


def test_ends_beyond_the_line_stay_there() -> None:
    assert lists(LINE, grid=3, span=0.4) == [[0.25, 0.5, 0.75]]


@pytest.mark.parametrize(
    ("directions", "options", "message"),
    [
        (PLAIN, {"span": 0.0}, "the span is 0.0"),
        (PLAIN, {"span": float("inf")}, "the span is inf"),
        (PLAIN, {"grid": 0}, "0x0 points does not fit 2 axes"),
        (PLAIN, {"grid": (3, 3, 3)}, "3x3x3 points does not fit 2 axes"),
        (LINE, {"grid": (3, 3)}, "3x3 points does not fit 1 axes"),
    ],
)
def test_grids_without_points_are_refused(
    directions: Directions, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        lists(directions, **options)
