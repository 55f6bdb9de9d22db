"""Steps of a search that are counted on from those before it."""

from typing import Any

import pytest

from fedscope.choices import AtMost
from fedscope.landscape.operators.progress_callback import continued


@pytest.mark.parametrize(
    ("total", "searches", "said"),
    [(AtMost(30), 2, AtMost(67)), (AtMost(30), 0, None), (30, 2, None), (None, 2, None)],
)
def test_a_bound_is_of_what_came_before_and_all_searches_that_are_left(
    total: int | None, searches: int, said: int | None
) -> None:
    told: list[tuple[Any, ...]] = []
    callback = continued(lambda *steps: told.append(steps), 7, searches)
    assert callback is not None
    callback(5, total, "λ ≈ 2")
    assert told == [(12, said, "λ ≈ 2")]
    assert isinstance(told[0][1], AtMost) == (said is not None)


def test_without_a_callback_there_is_none() -> None:
    assert continued(None, 7, 2) is None
