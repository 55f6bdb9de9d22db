import math
from typing import Any

import pytest

from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.estimates import EstimateEntry, Symbol
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
    ("symbol", "entry", "expected"),
    [
        ("H_D", {"value": 0.5, "stderr": 0.1, "resolved": False}, False),
        ("H_D", {"value": 1.0, "stderr": 0.1, "interval": [0.8, 1.0]}, False),  # older: cut to its range
        ("H_D", {"value": 1.0, "stderr": 0.0, "interval": [1.0, 1.0]}, True),
        ("H_D", {"value": 0.5, "stderr": 9.0, "interval": [-1.0, 1.0]}, False),
        ("H_D", {"value": 0.5, "stderr": 0.1}, True),
        ("H_N", {"value": 0.0, "stderr": 10.0, "interval": [0.0, 20.0]}, False),
        ("H_N", {"value": 2.0, "stderr": 1.0, "interval": [0.0, 4.0]}, True),
        ("H_N", {"value": None, "stderr": None}, False),
    ],
)
def test_older_records_are_read(symbol: Symbol, entry: dict[str, Any], expected: bool) -> None:
    assert EstimateEntry.read(entry).resolves(symbol) is expected


def test_pairs_are_as_the_record_says_or_by_their_range() -> None:
    matrix = [[0.0, -16.0], [-16.0, 0.0]]
    matrices = {"H_N": {"parameter": matrix}, "H_D": {"parameter": [[1.0, 4.7], [None, 1.0]]}}
    older = CrossClientEntry.read(crossed(matrices=matrices))
    assert older.resolved("H_N", "parameter") == [[True, False], [False, True]]
    assert older.resolved("H_D", "parameter") == [[True, False], [False, True]]
    stated = [[True, True], [True, False]]
    of_each = {"H_N": {"parameter": stated}, "H_D": {"parameter": None}}
    newer = CrossClientEntry.read(crossed(matrices=matrices, matrices_resolved=of_each))
    assert newer.resolved("H_N", "parameter") == stated
    assert newer.resolved("H_D", "parameter") == [[True, False], [False, True]]
