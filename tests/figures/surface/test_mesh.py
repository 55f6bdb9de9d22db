import numpy as np
import pytest

from fedscope.figures.surface.surface3d import facets

LINE = np.linspace(0.0, 1.0, 5)
SLOPE = np.repeat(LINE[:, None], 5, axis=1)  # height = x


def _area(polygons: list[np.ndarray]) -> float:
    """Total area seen from above (shoelace formula)."""
    total = 0.0
    for polygon in polygons:
        x, y = polygon[:, 0], polygon[:, 1]
        total += 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))
    return total


@pytest.mark.parametrize(("ceiling", "area"), [(2.0, 1.0), (0.6, 0.6), (0.5, 0.5), (0.01, 0.01), (-1.0, 0.0)])
def test_a_slope_is_cut_exactly_at_the_ceiling(ceiling: float, area: float) -> None:
    polygons = facets(LINE, LINE, SLOPE, ceiling=ceiling)
    assert _area(polygons) == pytest.approx(area)
    assert all((polygon[:, 2] <= ceiling + 1e-12).all() for polygon in polygons)


def test_a_missing_point_leaves_a_hole_of_its_four_neighbours() -> None:
    height = SLOPE.copy()
    height[2, 2] = np.nan
    assert _area(facets(LINE, LINE, height, ceiling=2.0)) == pytest.approx(12 / 16)
