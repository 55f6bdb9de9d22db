"""The settings of a training: each number is taken up to its bounds, and refused beyond them."""

import pytest
from pydantic import ValidationError

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings


@pytest.mark.parametrize(
    ("name", "least", "most", "beyond"),
    [
        ("adam_beta1", 0.0, 0.999, 1.0),
        ("adam_beta2", 0.0, 0.999, 1.0),
        ("momentum", 0.0, 0.999, 1.0),
        ("participation", 0.01, 1.0, 0.0),
        ("lr_decay", 0.01, 1.0, 0.0),
        ("phi", 0.01, 1.0, 0.0),
        ("rho", 0.01, 1.0, 0.0),
        ("target", 0.01, 1.0, 0.0),
        ("stragglers", 0.0, 1.0, 1.01),
        ("validation", 0.0, 0.5, 0.51),
    ],
)
def test_a_number_is_taken_up_to_its_bounds(name: str, least: float, most: float, beyond: float) -> None:
    for value in (least, most):
        assert getattr(Settings.model_validate({name: value}), name) == value
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: beyond})


def test_a_system_that_counts_no_memory_says_zero() -> None:
    known = {"round": 1, "clients": [0], "samples": [4], "peak_memory_bytes": [0]}
    assert Round.model_validate(known).peak_memory_bytes == [0]
    with pytest.raises(ValidationError, match="peak_memory_bytes"):
        Round.model_validate({**known, "peak_memory_bytes": [-1]})
