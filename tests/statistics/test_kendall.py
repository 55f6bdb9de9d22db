"""Kendall's τ against SciPy's, and the coverage of its interval under three laws."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kendalltau

from fedscope.statistics.kendall import _law, _mean, kendall_tau

Numbers = NDArray[np.float64]


def test_value_and_p_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for count in (3, 5, 8, 15):
        a, b = rng.random((2, count))
        expected = kendalltau(a, b, method="exact")
        found = kendall_tau(a.tolist(), b.tolist())
        assert found.value == pytest.approx(expected.statistic)
        assert found.p == pytest.approx(expected.pvalue)
        assert found.interval[0] <= found.value <= found.interval[1]


@pytest.mark.parametrize("theta", [-0.7, 0.0, 1.3])
def test_the_law_is_that_of_all_permutations(theta: float) -> None:
    counts = [
        sum(a > b for a, b in itertools.combinations(order, 2)) for order in itertools.permutations(range(5))
    ]
    weights = np.exp(-theta * np.array(counts))
    law = np.bincount(counts, weights=weights / weights.sum())
    np.testing.assert_allclose(_law(5, theta), law, atol=1e-12)
    assert _mean(5, theta) == pytest.approx(1 - 2 * (law @ np.arange(11)) / 10)


def test_the_interval_leaves_out_zero_where_the_permutation_test_rejects() -> None:
    rng, seen = np.random.default_rng(1), set()
    for _ in range(60):
        a = rng.random(7)
        b = rng.random(7) + 1.5 * a
        found = kendall_tau(a.tolist(), b.tolist())
        low, high = found.interval
        seen.add(found.p <= 0.05)
        assert (found.p <= 0.05) == (not low <= 0 <= high)
    assert seen == {True, False}


def test_ties_count_half_and_widen_the_interval() -> None:
    tied = kendall_tau([1, 2, 3, 3, 5], [1, 2, 3, 4, 5])
    whole = kendall_tau([1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    other = kendall_tau([1, 2, 4, 3, 5], [1, 2, 3, 4, 5])
    assert tied.value == pytest.approx(0.9)
    assert tied.interval == (other.interval[0], whole.interval[1])
    assert tied.p == other.p
    constant = kendall_tau([1, 1, 1, 1], [1, 2, 3, 4])
    assert constant.value == 0
    assert constant.p == 1
    assert constant.interval == (-1, 1)


def test_too_few_or_unknown_pairs_have_no_tau() -> None:
    for found in (kendall_tau([1, 2], [1, 2]), kendall_tau([1, 2, math.nan], [1, 2, 3])):
        assert math.isnan(found.value)
        assert math.isnan(found.p)


def normal(rng: np.random.Generator, count: int, tau: float) -> tuple[Numbers, Numbers]:
    z, rho = rng.standard_normal((2, count)), math.sin(math.pi * tau / 2)
    return z[0], rho * z[0] + math.sqrt(1 - rho**2) * z[1]


def clayton(rng: np.random.Generator, count: int, tau: float) -> tuple[Numbers, Numbers]:
    theta, (u, v) = 2 * tau / (1 - tau), rng.random((2, count))
    return u, ((v ** (-theta / (1 + theta)) - 1) * u**-theta + 1) ** (-1 / theta)


def mixed(rng: np.random.Generator, count: int, tau: float) -> tuple[Numbers, Numbers]:
    """A share of the pairs on a line, the others independent: τ = s²/3 + 2s/3."""
    share, (u, v) = math.sqrt(1 + 3 * tau) - 1, rng.random((2, count))
    return u, np.where(rng.random(count) < share, u, v)


@pytest.mark.parametrize(
    ("law", "tau", "least", "most"),
    [
        (normal, 0.0, 0.92, 0.99),
        (normal, 0.6, 0.92, 0.99),
        (clayton, 0.3, 0.92, 0.99),
        (mixed, 0.6, 0.80, 0.90),
    ],
)
def test_its_interval_covers_as_the_module_says(
    law: Callable[..., tuple[Numbers, Numbers]], tau: float, least: float, most: float
) -> None:
    rng, hits, known = np.random.default_rng(2), 0, dict[float, tuple[float, float]]()
    for _ in range(600):
        a, b = law(rng, 8, tau)
        value = float(kendalltau(a, b).statistic)
        if value not in known:
            known[value] = kendall_tau(a.tolist(), b.tolist()).interval
        low, high = known[value]
        hits += low <= tau <= high
    assert least <= hits / 600 <= most
