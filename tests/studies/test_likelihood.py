"""The likelihood of printed numbers, against SciPy's densities and data of a known origin."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, multivariate_t

from studies.likelihood import Errors, fit, log_density, pooled_spread, shares

ERRORS = Errors(
    training=np.array([0.06, 0.04]),
    trainings=np.array([1.0, 1.0, 3.0]),
    samples=np.array([0.1, 0.02]),
    draws=2,
    common=np.array([0.8, 0.2]),
    short=np.array([False, False, True]),
    growth=0.15,
    grown=2,
    correlation=0.5,
)


def test_the_density_is_that_of_students_t_and_of_the_normal_distribution() -> None:
    y, covariance = np.array([0.1, -0.2, 0.3, 0.0, 0.1, 0.2]), ERRORS.covariance()
    assert log_density(y, covariance, 4) == pytest.approx(multivariate_t.logpdf(y, shape=covariance, df=4))
    assert log_density(y, covariance, math.inf) == pytest.approx(
        multivariate_normal.logpdf(y, cov=covariance)
    )


def test_the_covariance_is_the_sum_of_its_parts() -> None:
    found = ERRORS.covariance()
    assert found == pytest.approx(found.T)
    assert np.linalg.eigvalsh(found).min() > 0
    samples = 1.5 * 0.1**2
    assert found[0, 0] == pytest.approx(2 * 0.06**2 + samples)
    both = 0.5 * (2 * 0.06 * 0.04 + (0.4 + 0.4) * 1.5 * 0.1 * 0.02)
    assert found[0, 1] == pytest.approx(both)  # of one method
    assert found[0, 2] == pytest.approx(0.8 * samples)  # two methods, the same samples
    assert found[0, 3] == pytest.approx(0.5 * 0.4 * 1.5 * 0.1 * 0.02)
    assert found[4, 4] == pytest.approx((1 + 1 / 3) * 0.06**2 + samples + 1.5 * 0.15**2)
    assert found[0, 4] == pytest.approx(0.8 * samples)  # the growth is of the third alone


def test_the_common_part_of_the_growth_is_shared_by_short_rows() -> None:
    both = replace(ERRORS, short=np.array([False, True, True]))
    assert both.covariance()[2, 4] - ERRORS.covariance()[2, 4] == pytest.approx(0.15**2 / 2)


def test_a_common_factor_is_found_and_leaves_nothing() -> None:
    found = fit(np.log(np.tile([1.25, 0.5], (3, 1))), ERRORS, 4)
    assert found.factors == pytest.approx([1.25, 0.5])
    assert found.residual == pytest.approx(0, abs=1e-12)


def test_the_ratios_alone_know_nothing_of_the_level() -> None:
    """Neither a common factor nor an error of it, here of 10 %, changes what the ratios say."""
    rng = np.random.default_rng(2)
    ratios = rng.normal(scale=0.1, size=(3, 2))
    found = fit(ratios, ERRORS, 4)
    assert fit(ratios + np.array([0.3, -0.2]), ERRORS, 4).ratios_only == pytest.approx(found.ratios_only)
    assert fit(ratios + np.array([0.3, -0.2]), ERRORS, 4).residual == pytest.approx(found.residual)

    class Looser(Errors):
        def covariance(self) -> NDArray[np.float64]:
            return super().covariance() + np.kron(np.ones((3, 3)), 0.01 * np.eye(2))

    looser = Looser(**vars(ERRORS))
    assert fit(ratios, looser, 4).ratios_only == pytest.approx(found.ratios_only)
    assert fit(ratios, looser, 4).log_likelihood != pytest.approx(found.log_likelihood)
    contrasts = np.kron([[0.5**0.5, -(0.5**0.5), 0], [6**-0.5, 6**-0.5, -2 * 6**-0.5]], np.eye(2))
    scale = contrasts @ ERRORS.covariance() @ contrasts.T
    assert found.ratios_only == pytest.approx(
        multivariate_t.logpdf(contrasts @ ratios.reshape(-1), shape=scale, df=4)
    )


def test_what_a_seed_gives_to_all_methods_is_in_every_pair() -> None:
    alike = replace(ERRORS, alike=0.8)
    found, plain = alike.covariance(), ERRORS.covariance()
    assert np.diag(found) == pytest.approx(np.diag(plain))
    assert found[0, 2] - plain[0, 2] == pytest.approx(0.8 * 2 * 0.06**2)
    assert found[0, 4] - plain[0, 4] == pytest.approx(0.8 * (1 + 3**-0.5) * 0.06**2)


def test_numbers_of_a_reading_with_its_own_errors_favour_it() -> None:
    """Over many tables drawn under one reading, its share is as large as the rate at which it is right."""
    rng, covariance = np.random.default_rng(3), ERRORS.covariance()
    first, second = np.zeros((3, 2)), np.array([[0.25, 0.0]] * 3)
    won, shared = 0, 0.0
    for _ in range(400):
        drawn = rng.multivariate_normal(np.zeros(6), covariance).reshape(3, 2)
        likely = shares([fit(drawn - one, ERRORS, math.inf).log_likelihood for one in (first, second)])
        won += likely[0] > 0.5
        shared += max(likely)
    assert won / 400 == pytest.approx(shared / 400, abs=0.06)
    assert won > 300


def test_tables_of_a_reading_are_uniform_in_p() -> None:
    rng, covariance = np.random.default_rng(5), ERRORS.covariance()
    drawn = rng.multivariate_normal(np.zeros(6), covariance, 500).reshape(-1, 3, 2)
    found = np.sort([fit(one, ERRORS, math.inf).p for one in drawn])
    assert np.abs(found - (np.arange(500) + 0.5) / 500).max() < 0.08


def test_shares_add_up_whatever_the_level() -> None:
    assert shares([-1000.0, -1000.0 + math.log(3)]) == pytest.approx([0.25, 0.75])
    assert shares([]) == []


def test_the_pooled_spread_is_of_logarithms_within_groups() -> None:
    groups = {"a": [1.0, math.e], "b": [10.0, 10 * math.e**3], "c": [5.0]}
    assert pooled_spread(groups) == pytest.approx(math.sqrt((0.5 + 4.5) / 2))
    assert pooled_spread({"a": [1.0]}) is None
