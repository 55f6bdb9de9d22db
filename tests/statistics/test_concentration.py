"""Shares of a sum: by hand on a few parts, errors against many draws."""

import math

import numpy as np
import pytest

from fedscope.statistics.concentration import (
    cumulative_shares,
    group_shares,
    ranked,
    share_of,
    shares,
    top_share,
)

PARTS = [1.0, -2.0, 6.0, 3.0, 2.0]  # their sum is 10


def test_shares_are_of_the_sum_of_all() -> None:
    assert ranked([*PARTS, 6.0]) == [2, 5, 3, 4, 0, 1]
    assert shares(PARTS) == pytest.approx([0.1, -0.2, 0.6, 0.3, 0.2])
    assert share_of(PARTS, [1, 3]) == pytest.approx(0.1)
    assert cumulative_shares(PARTS) == pytest.approx([0.6, 0.9, 1.1, 1.2, 1.0])


@pytest.mark.parametrize(("number", "count"), [(1, 1), (100, 1), (101, 2), (512, 6), (700, 7)])
def test_the_largest_one_per_cent_are_rounded_up(number: int, count: int) -> None:
    parts = [float(i) for i in range(number, 0, -1)]
    found, share = top_share(parts)
    assert found == count
    assert share == pytest.approx(sum(parts[:count]) / sum(parts))


def test_groups_add_up_and_the_largest_comes_first() -> None:
    found = group_shares(PARTS, {"a": [0, 1], "b": [2, 3, 4], "c": [0, 2], "none": []})
    assert [*found] == ["b", "c", "none", "a"]
    assert found["a"].share + found["b"].share == pytest.approx(1)
    assert found["b"].count == 3
    assert found["b"].mean == pytest.approx(11 / 3)
    assert found["c"].share == pytest.approx(0.7)
    assert (found["none"].count, found["none"].share) == (0, 0)
    residuals = [0.3, 1.4, 1.8, -2.1, -1.4]  # q·(1 − 0.7) in "c", −0.7·q outside
    expected = math.sqrt(sum(e * e for e in residuals) / 4 * 5) / 10
    assert found["c"].stderr == pytest.approx(expected)
    assert group_shares(PARTS, {"all": range(5)})["all"].stderr == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_share_is_that_of_other_draws() -> None:
    draws, size = np.random.default_rng(0), 400

    def drawn() -> tuple[float, float]:
        inside = draws.random(size) < 0.3
        parts = draws.exponential(np.where(inside, 3.0, 1.0)).tolist()
        found = group_shares(parts, {"in": np.flatnonzero(inside).tolist()})["in"]
        return found.share, found.stderr

    many = np.array([drawn() for _ in range(400)])
    assert many[:, 0].mean() == pytest.approx(0.9 / 1.6, abs=0.005)
    assert many[:, 1].mean() == pytest.approx(many[:, 0].std(), rel=0.1)


@pytest.mark.parametrize("parts", [[0.0, 0.0], [1.0, -3.0], [math.nan, 1.0]])
def test_without_a_positive_sum_there_are_no_shares(parts: list[float]) -> None:
    found = group_shares(parts, {0: [0]})[0]
    assert all(map(math.isnan, (top_share(parts)[1], *shares(parts), found.share, found.stderr)))
    assert math.isnan(group_shares([2.0], {0: [0]})[0].stderr)


def test_a_finite_population_makes_shares_surer() -> None:
    groups = {"a": [0, 1], "b": [2, 3, 4]}
    usual, finite, whole = (group_shares(PARTS, groups, factor)["a"] for factor in (1.0, 0.25, 0.0))
    assert finite.stderr == pytest.approx(usual.stderr / 2)
    assert (whole.stderr, whole.share) == (0, usual.share)
