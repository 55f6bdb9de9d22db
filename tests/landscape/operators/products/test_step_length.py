"""The step of a finite difference, where truncation and rounding are known in closed form."""

import math

import pytest
import torch
from torch import Tensor

from fedscope.landscape.operators.products.finite_differences import balanced

NOISE = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def difference(length: float, truncation: float, rounding: float) -> Tensor:
    """Hu = 1 in every coordinate, with errors c·ε² and s/ε of another draw for each step."""
    draw = torch.randn(400, generator=torch.Generator().manual_seed(round(1e9 * length)), dtype=torch.float64)
    return 1 + truncation * length**2 * NOISE + rounding / length * draw


@pytest.mark.parametrize(("truncation", "rounding"), [(1.0, 1e-7), (100.0, 1e-7), (0.1, 1e-14), (10.0, 1e-3)])
def test_both_errors_balance(truncation: float, rounding: float) -> None:
    best = (rounding / (2 * truncation)) ** (1 / 3)  # the minimum of c·ε² + s/ε
    found = balanced(lambda length: difference(length, truncation, rounding), 3.0)
    assert best / 3 < found.length < best * 3
    least = truncation * best**2 + rounding / best
    assert float((found.slope - 1).norm()) / 20 < 3 * least
    assert found.error < 6 * least


def test_steps_that_overflow_are_passed_over() -> None:
    found = balanced(lambda length: difference(length, 1, 1e-7) * (math.nan if length > 0.1 else 1.0), 100.0)
    assert 1e-3 < found.length < 1e-1


def test_a_staircase_is_not_taken_for_precision() -> None:
    """Below 1e-3 nothing moves: every difference is the same, and wrong."""

    def seen(length: float) -> Tensor:
        return difference(length, 1, 1e-5) if length > 1e-3 else torch.full_like(NOISE, 0.1)

    assert balanced(seen, 1.0).length > 5e-3


def test_no_curvature_has_no_error() -> None:
    found = balanced(lambda length: torch.zeros(3, dtype=torch.float64), 1.0)
    assert found.error == 0
    assert float(found.slope.norm()) == 0
