"""The package's Dirichlet partitions against plain loops, draw for draw; and the loops against the letter."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from fedscope.data.partition.dirichlet import dirichlet_balanced, dirichlet_equal, dirichlet_in_turn
from fedscope.data.partition.regular import Rows
from tests import tiers
from tests.data import reference_partition as plain

quick = settings(max_examples=tiers.examples(30), deadline=None)
few_labels = st.lists(st.integers(0, 6), min_size=60, max_size=300)


def draw_alike(seed: int, ours: Callable[..., list[Rows]], theirs: Callable[..., list[list[int]]]) -> None:
    first, second = np.random.default_rng(seed), np.random.default_rng(seed)
    assert [rows.tolist() for rows in ours(generator=first)] == theirs(generator=second)
    assert first.random() == second.random()  # neither has drawn more than the other


@given(labels=few_labels, clients=st.integers(1, 3), alpha=st.floats(1, 1e4), seed=st.integers(0, 2**32))
@quick
def test_balanced_draw_for_draw(labels: list[int], clients: int, alpha: float, seed: int) -> None:
    held = partial(dirichlet_balanced, np.array(labels), clients, alpha=alpha)
    draw_alike(seed, held, partial(plain.balanced, labels, clients, alpha))


@pytest.mark.parametrize("seed", range(5))
def test_balanced_draw_for_draw_after_discarded_draws(seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 10, 400)
    held = dirichlet_balanced(labels, 25, np.random.default_rng(seed), alpha=2.0)
    expected = plain.balanced(labels.tolist(), 25, 2.0, np.random.default_rng(seed))
    assert [rows.tolist() for rows in held] == expected


@pytest.mark.parametrize("exhausted", ["redraw", "refill"])
@given(labels=few_labels, clients=st.integers(1, 40), alpha=st.floats(0.01, 1e4), seed=st.integers(0, 2**32))
@quick
def test_equal_draw_for_draw(
    exhausted: str, labels: list[int], clients: int, alpha: float, seed: int
) -> None:
    held = partial(dirichlet_equal, np.array(labels), clients, alpha=alpha, exhausted=exhausted)
    draw_alike(seed, held, partial(plain.equal, labels, clients, alpha, refill=exhausted == "refill"))


@given(labels=few_labels, clients=st.integers(1, 40), alpha=st.floats(1e-6, 1e4), seed=st.integers(0, 2**32))
@quick
def test_in_turn_draw_for_draw(labels: list[int], clients: int, alpha: float, seed: int) -> None:
    held = partial(dirichlet_in_turn, np.array(labels), clients, alpha=alpha)
    draw_alike(seed, held, partial(plain.in_turn, labels, clients, alpha))


def test_renormalising_has_the_distribution_of_drawing_again() -> None:
    # What the first client holds of each class, where classes run out early: two samples of small partitions.
    labels = [0] * 2 + [1] * 3 + [2] * 7
    generator = np.random.default_rng(5)
    table = np.zeros((2, 25), dtype=np.int64)
    for _ in range(1000):
        for row, draw in enumerate((plain.equal, plain.equal_by_redrawing)):
            held = [labels[r] for r in draw(labels, 3, 0.5, generator)[0]]
            table[row, 5 * held.count(0) + held.count(1)] += 1
    seen = table[:, table.sum(0) >= 10]
    assert seen.sum() > 0.99 * table.sum()
    assert chi2_contingency(seen).pvalue > 0.01
