"""Verdicts judged together, against Holm's procedure step by step and against simulated families."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.statistics.adjusted_p import holm
from tests import tiers


def step_by_step(p_values: list[float], level: float) -> set[int]:
    """Which hypotheses are rejected: from the smallest p on, until one is more than level/(those left)."""
    rejected: set[int] = set()
    for place in sorted(range(len(p_values)), key=lambda place: p_values[place]):
        if p_values[place] * (len(p_values) - len(rejected)) > level:
            break
        rejected.add(place)
    return rejected


@settings(max_examples=tiers.examples(), deadline=None)
@given(st.lists(st.floats(0, 1), max_size=8), st.floats(0.001, 0.3))
def test_it_rejects_what_holms_procedure_does(p_values: list[float], level: float) -> None:
    adjusted = holm(p_values)
    assert {place for place, p in enumerate(adjusted) if p <= level} == step_by_step(p_values, level)


def test_what_is_not_known_counts_for_none() -> None:
    adjusted = holm([0.02, math.nan, 0.04])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])
    assert adjusted[2] == pytest.approx(0.04)
    assert holm([]) == []


def test_a_family_without_effects_is_wrong_in_five_of_a_hundred_at_most() -> None:
    draws = np.random.default_rng(0).uniform(size=(4000, 7))
    wrong = np.mean([min(holm(list(p))) <= 0.05 for p in draws])
    assert 0.04 < wrong < 0.055
    assert np.mean(draws.min(1) <= 0.05) > 0.25  # what seven verdicts of their own would be
