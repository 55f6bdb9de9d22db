"""A landscape's record in words."""

import pytest

from fedscope.figures.text.advice import geometry
from fedscope.records.saved_records import landscapes
from tests.figures.records import landscape


@pytest.mark.parametrize(
    ("over", "differs"), [([0.08, 0.2], False), ([0.08, -0.4], True), ([0.9, 0.2], True)]
)
def test_a_curvature_over_steps_that_is_another_than_at_the_centre_says_so(
    over: list[float], differs: bool
) -> None:
    steps = {"values": over, "steps": [0.03, 0.002]}
    (record,) = landscapes([landscape(surface_curvature=[0.09, 0.2], step_curvature=steps)])
    lines = list(geometry(record))
    assert "over ±0.03 and ±0.002" in lines[1]
    assert ("kinks" in lines[1]) is differs
