import math
from typing import Any

import pytest

from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import EstimateEntry
from fedscope.statistics.resolution import is_resolved
from tests.figures.records import crossed


@pytest.mark.parametrize(
    ("value", "interval", "low", "high", "expected"),
    [
        (0.9, (0.8, 0.95), -1, 1, True),
        (0.0, (-0.9, 1.0), -1, 1, True),  # wide, and yet it excludes something
        (0.0, (-1.0, 1.0), -1, 1, False),
        (1.02, (0.9, 1.0), -1, 1, False),
        (-11.0, (-1.0, 1.0), -1, 1, False),
        (1 + 1e-7, (1.0, 1.0), -1, 1, True),  # rounding
        (-1e-9, (0.0, 2.0), 0, math.inf, False),
        (0.0, (0.0, 0.0), 0, math.inf, True),
        (3.0, (0.0, 20.0), 0, 20.0, False),
        (3.0, (0.0, 20.0), 0, math.inf, True),
        (0.5, None, 0, 1, True),  # no error is known
        (0.5, (math.nan, math.nan), 0, 1, True),
        (None, None, 0, 1, False),
        (math.nan, None, 0, 1, False),
        (-math.inf, None, -math.inf, math.inf, False),
    ],
)
def test_an_estimate_is_resolved_where_it_says_something(
    value: float | None, interval: tuple[float, float] | None, low: float, high: float, expected: bool
) -> None:
    assert is_resolved(value, interval, low, high) is expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"value": 0.5, "stderr": 0.1, "resolved": False}, False),
        ({"value": 0.5, "stderr": 0.1, "resolved": True}, True),
        ({"value": 0.5, "stderr": 0.1}, True),
        ({"value": None, "stderr": None}, False),
    ],
)
def test_a_mean_is_resolved_as_its_record_says(entry: dict[str, Any], expected: bool) -> None:
    assert EstimateEntry.read(entry).is_resolved is expected


def test_pairs_are_as_the_record_says_or_where_they_have_a_value() -> None:
    matrices = {
        "H_N": {"parameter": [[0.0, 16.0], [16.0, 0.0]]},
        "H_D": {"parameter": [[1.0, 0.7], [None, 1.0]]},
    }
    stated = [[True, False], [False, True]]
    of_each = {"H_N": {"parameter": stated}, "H_D": {"parameter": None}}
    found = CrossClientEntry.read(crossed(matrices=matrices, matrices_resolved=of_each))
    assert found.resolved("H_N", "parameter") == stated
    assert found.resolved("H_D", "parameter") == [[True, True], [False, True]]
