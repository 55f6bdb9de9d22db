import math

import pytest
import torch

from fedscope.errors import UserError
from fedscope.landscape.sharpness.balls import Geometry
from fedscope.landscape.sharpness.sharpness_result import Cost

G = torch.Generator().manual_seed(0)
POINT, C = (torch.randn(9, generator=G, dtype=torch.float64) for _ in range(2))
C = C.abs() + 0.1


@pytest.mark.parametrize("p", [2, math.inf])
@pytest.mark.parametrize("adaptive", [False, True])
def test_the_projection_is_the_nearest_point_of_the_ball(p: float, adaptive: bool) -> None:
    geometry, c = Geometry(p, adaptive), C if adaptive else torch.ones_like(C)
    found = geometry.project(3 * POINT, c, 0.4)
    assert float((found / c).norm(p=p)) == pytest.approx(0.4, rel=1e-9)
    # the angle to every other point of the ball is at least a right one (a convex set's projection)
    for _ in range(50):
        other = geometry.noise(c, G).double()
        other = 0.4 * other / float((other / c).norm(p=p))
        assert float((3 * POINT - found) @ (other - found)) < 1e-9
    inside = 0.01 * c
    torch.testing.assert_close(geometry.project(inside, c, 0.4), inside, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", [2, math.inf])
def test_the_steepest_direction_has_the_largest_slope_of_the_ball(p: float) -> None:
    found = Geometry(p, True).steepest(POINT, C)
    assert float((found / C).norm(p=p)) == pytest.approx(1)
    dual = (C * POINT).norm(p=2 if p == 2 else 1)  # Hölder
    torch.testing.assert_close(POINT @ found, dual, rtol=1e-12, atol=0)


def test_a_weight_of_zero_does_not_move_in_an_adaptive_ball() -> None:
    c = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    moved = Geometry(2, True).project(torch.tensor([0.0, 3.0, 4.0], dtype=torch.float64), c, 1.0)
    assert float(moved[0]) == 0
    assert float((moved[1:] / c[1:]).norm()) == pytest.approx(1)
    assert Geometry(2).steepest(torch.zeros(3), torch.ones(3)).tolist() == [0, 0, 0]


def test_noise_has_the_spread_of_its_definition() -> None:
    g, c = torch.Generator().manual_seed(1), torch.full((100_000,), 2.0)
    normal, uniform = Geometry(2, True).noise(c, g), Geometry(math.inf, True).noise(c, g)
    assert float(normal.std()) == pytest.approx(2, rel=0.02)
    assert float(uniform.std()) == pytest.approx(2 / math.sqrt(3), rel=0.02)
    assert float(uniform.abs().max()) <= 2


def test_another_norm_is_refused() -> None:
    with pytest.raises(UserError, match="p = 2 or p = infinity"):
        Geometry(1)


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3) + Cost(10, 20, 30) == Cost(11, 22, 33)
