"""The share of intervals that hold the truth is what they claim, as closely as the draws can tell."""

import os
from collections import Counter

import pytest
import torch

from tests import tiers
from tests.tiers import NOMINAL

from .coverage import World, costs, estimates, truths, world

DRAWS = tiers.draws(20, 40)  # the documented shares are of 300
CHEAP = tiers.draws(40, 40)  # in both tiers
FIRST = int(os.environ.get("FEDSCOPE_SEED", 0))  # the seed of the first one

pytestmark = pytest.mark.drawn


@pytest.fixture(scope="module")
def found() -> World:
    return world()


def test_intervals_of_gaps_alignment_and_overlap_cover_the_populations(found: World) -> None:
    truth, hits = truths(found), Counter[str]()
    for seed in range(FIRST, FIRST + DRAWS):
        for name, one in estimates(found, seed).items():
            low, high = one.interval()
            hits[name] += low <= truth[name] <= high
    _are_nominal({name: hits[name] / DRAWS for name in truth}, DRAWS)


def test_intervals_of_the_averaging_cost_cover_the_population(found: World) -> None:
    truth, hits = costs(found), Counter[str]()
    for seed in range(FIRST, FIRST + CHEAP):
        rows = found.draw(2, torch.Generator().manual_seed(seed))
        for name, one in costs(found, rows).items():
            low, high = one.interval()
            hits[name] += low <= truth[name].value <= high
    _are_nominal({name: hits[name] / CHEAP for name in truth}, CHEAP)


def _are_nominal(shares: dict[str, float], draws: int) -> None:
    print({name: f"{share:.1%}" for name, share in shares.items()})
    assert all(abs(share - NOMINAL) <= tiers.slack(draws) for share in shares.values()), shares
