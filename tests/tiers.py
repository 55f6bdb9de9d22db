"""The two tiers of the tests: which tests a tier runs, and how often these draw.

`make test` runs the fast tier, `make test-rest` what it left out, `make test-all` both at once, as does a
plain ``pytest``. A test is left out of the fast tier by the marker ``slow``, on it or on its file, or by the
table below, which holds what is a matter of parameters. A test with the marker ``drawn``, and each of
Hypothesis, is of both: it draws less in the fast tier, and again in the rest.
"""

import math
import os
import re
from collections.abc import Sequence
from typing import Literal

import pytest

Tier = Literal["fast", "rest", "all"]
TIERS: tuple[Tier, ...] = ("fast", "rest", "all")
NOMINAL = 0.95  # of intervals
EXAMPLES = 25  # of a property, in the fast tier

KEPT = (  # of files or tests that are slow: the beginnings of the names of tests that stay in the fast tier
)
LEFT_OUT: Sequence[str] = (  # patterns of names of tests, parameters included
)

_chosen: Tier = "all"


def choose(tier: Tier) -> None:
    """Take a tier, before any module of tests is imported."""
    global _chosen
    _chosen = tier


def draws(few: int = 20, most: int = 300) -> int:
    """Return how often a test of a share or a mean repeats its draw: ``few`` times in the fast tier."""
    return few if _chosen == "fast" else int(os.environ.get("FEDSCOPE_DRAWS", most))


def examples(most: int = 100) -> int:
    """Return how many examples Hypothesis tries."""
    return min(EXAMPLES, most) if _chosen == "fast" else most


def slack(repetitions: int, share: float = NOMINAL) -> float:
    """Return by how much the share of so many draws may be off; 0.03 with 300 draws."""
    return 2.4 * math.sqrt(share * (1 - share) / repetitions)


def nominal(hits: int, repetitions: int) -> bool:
    """Whether intervals that held the truth in ``hits`` of the draws claim what they hold."""
    return abs(hits / repetitions - NOMINAL) <= slack(repetitions)


def is_left_out(item: pytest.Item) -> bool:
    """Whether the fast tier does without a test."""
    if any(re.match(pattern, item.nodeid) for pattern in LEFT_OUT):
        return True
    return item.get_closest_marker("slow") is not None and not item.nodeid.startswith(KEPT)


def is_drawn(item: pytest.Item) -> bool:
    """Whether a test draws more in the rest than in the fast tier."""
    by_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return bool(by_hypothesis) or item.get_closest_marker("drawn") is not None


def runs(item: pytest.Item) -> bool:
    """Whether the chosen tier has a test."""
    if _chosen == "fast":
        return not is_left_out(item)
    return _chosen == "all" or is_left_out(item) or is_drawn(item)
