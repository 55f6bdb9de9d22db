import numpy as np
import pytest
from matplotlib.colors import LogNorm

from fedscope.errors import UserError
from fedscope.figures.color_scale import Grid, format_value, shared_scale

SIDE = np.linspace(-1, 1, 21)
RADIUS = SIDE[:, None] ** 2 + SIDE[None, :] ** 2


def _bowl(curvature: float, floor: float = 0.1) -> Grid:
    bowl: Grid = floor + curvature * RADIUS
    return bowl


def test_moderate_losses_share_one_logarithmic_range_uncut() -> None:
    scale = shared_scale([_bowl(1.0), _bowl(2.0)])
    assert (scale.low, scale.high) == pytest.approx((0.1, 4.1))
    assert scale.log
    assert not scale.clipped
    assert isinstance(scale.norm(), LogNorm)
    assert scale.label() == "loss (log scale)"


def test_tall_walls_are_cut_above_every_minimum() -> None:
    scale = shared_scale([_bowl(1e9), _bowl(1.0, floor=3.0)])
    assert scale.clipped
    assert 3.0 * 5 < scale.high <= 3.0 * 10
    assert scale.highest == pytest.approx(2e9 + 0.1)


def test_a_wall_that_ends_a_little_above_the_ceiling_is_spared() -> None:
    relief = np.geomspace(1, 3.0, 100).reshape(10, 10)
    for top, clipped in ((49.0, False), (51.0, True)):
        walled = relief.copy()
        walled[0, :2] = 1.0, top
        assert shared_scale([walled]).clipped == clipped


def test_minima_stay_in_sight_between_high_walls() -> None:
    scale = shared_scale([3.5 * np.exp(2.6 * np.sqrt(_bowl(slope, 0.0))) for slope in (1.0, 2.0)])
    assert scale.clipped
    assert scale.high < 3.5 * 100 < scale.highest


def test_one_steep_surface_alone_keeps_at_most_six_decades() -> None:
    scale = shared_scale([_bowl(1e300)])
    assert scale.high == pytest.approx(1e5)


@pytest.mark.parametrize("floor", [0.0, -2.0])
def test_losses_that_are_not_positive_make_the_scale_linear(floor: float) -> None:
    scale = shared_scale([_bowl(1.0, floor=floor), _bowl(1.0)])
    assert not scale.log
    assert scale.low == floor
    assert "linear" in scale.label()
    np.testing.assert_allclose(np.diff(scale.bands(), n=2), 0, atol=1e-12)


@pytest.mark.parametrize("value", [0.7, 0.0, -3.0, 1e-300])
def test_a_flat_surface_gets_a_range_around_it(value: float) -> None:
    scale = shared_scale([np.full((3, 3), value)])
    assert scale.low < value < scale.high
    assert not scale.clipped


def test_points_that_are_not_finite_do_not_stretch_the_scale() -> None:
    broken = _bowl(1.0)
    broken[0, :3] = np.nan, np.inf, -np.inf
    scale = shared_scale([broken])
    assert scale.log
    assert scale.highest == pytest.approx(2.1, rel=0.1)
    assert np.isnan(scale.height(broken)[0, :3]).all()


def test_no_finite_loss_is_an_error_that_names_the_mend() -> None:
    with pytest.raises(UserError, match="--span"):
        shared_scale([np.full((3, 3), np.nan)])


@pytest.mark.parametrize("top", [0.102, 0.15, 1.0, 1e2, 1e4, 1e8])
def test_ticks_are_few_round_and_inside(top: float) -> None:
    scale = shared_scale([np.geomspace(0.1, top, 49).reshape(7, 7)])
    for ticks in (scale.ticks(), scale.lines()):
        assert 2 <= len(ticks) <= 10
        assert ticks == sorted(ticks)
        assert scale.low <= ticks[0]
        assert ticks[-1] <= scale.high
        assert all(float(f"{tick:.4g}") == pytest.approx(tick, rel=1e-12) for tick in ticks)


@pytest.mark.parametrize(
    ("loss", "label"),
    [
        (0.0, "0"),
        (2.225, "2.225"),
        (-3.5, "−3.5"),
        (0.001, "0.001"),
        (5000.0, "5000"),
        (1e4, "$10^{4}$"),
        (3e-7, r"$3\times10^{-7}$"),
        (-1e5, r"$-1\times10^{5}$"),
    ],
)
def test_format_value(loss: float, label: str) -> None:
    assert format_value(loss) == label


def test_format_value_rounds_before_it_chooses_the_form() -> None:
    assert format_value(9999.9, digits=2) == "$10^{4}$"
    assert format_value(11043.0, digits=2) == r"$1.1\times10^{4}$"


def test_an_accuracy_is_linear_in_percent_and_never_beyond_it() -> None:
    scale = shared_scale([np.array([[0.2, 0.7]])], "test accuracy")
    assert (scale.log, scale.low, scale.high, scale.clipped) == (False, 0.2, 0.7, False)
    assert scale.label() == "test accuracy (%)"
    assert scale.format(0.3) == "30"
    flat = shared_scale([np.ones((2, 2))], "accuracy")
    assert (flat.low, flat.high) == (0.5, 1.0)
    other = shared_scale([np.array([[1e-6, 1e6]])], "sharpness")
    assert (other.log, other.label(), other.format(2.0)) == (False, "sharpness", "2")
