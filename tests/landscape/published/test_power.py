import pytest
import torch
from torch import Tensor

from fedscope.landscape.published.engines import power_eigenpairs
from tests.landscape.cases import matrix_operator, symmetric

SEPARATE = Tensor([9.0, -4.0, 1.5, 0.2, 0.0, 0.0])


def start(seed: int, size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(seed)).double()


def quotient(matrix: Tensor, v: Tensor, steps: int) -> tuple[float, Tensor]:
    """Return vᵀA²ˢ⁻¹v / vᵀA²ˢ⁻²v, and Aˢv as a unit vector."""
    before = torch.linalg.matrix_power(matrix, steps - 1) @ v
    after = matrix @ before
    return float(before @ after / (before @ before)), after / after.norm()


def test_separate_eigenvalues_are_found_in_order_of_magnitude_and_sorted_by_value() -> None:
    matrix = symmetric(SEPARATE)
    pairs = power_eigenpairs(matrix_operator(matrix), 3, steps=200, threshold=1e-13)
    assert pairs.values.tolist() == pytest.approx([9.0, 1.5, -4.0], rel=1e-9)
    for value, vector in zip(pairs.values, pairs.vectors.T, strict=True):
        torch.testing.assert_close(matrix @ vector, value * vector, atol=1e-5, rtol=0)


def test_few_steps_give_the_quotients_of_the_powers_whatever_the_eigenvalues_are() -> None:
    matrix = symmetric(Tensor([1.0, 0.99, 0.98, 0.97, 0.9, 0.5, -0.3]))
    pairs = power_eigenpairs(matrix_operator(matrix), 2, steps=4, threshold=0.0, seed=3)
    first, v = quotient(matrix, start(3, 7), 4)
    deflated = matrix - first * torch.outer(v, v)
    second, w = quotient(deflated, v, 4)
    assert sorted(pairs.values.tolist()) == pytest.approx(sorted([first, second]), rel=1e-10)
    assert {round(float(abs(pairs.vectors[0, i])), 8) for i in range(2)} == {
        round(float(abs(one[0])), 8) for one in (v, w)
    }
    assert pairs.matvecs == 8
    assert abs(second - 0.99) > 0.005  # which is why it is no estimate of ours


def test_it_stops_where_a_value_hardly_changes() -> None:
    seen: list[int] = []
    far = power_eigenpairs(
        matrix_operator(symmetric(Tensor([8.0, 0.1, 0.0]))), 1, progress=lambda n, *_: seen.append(n)
    )
    assert far.matvecs == len(seen) == seen[-1] < 6
    close = power_eigenpairs(matrix_operator(symmetric(Tensor([1.0, 0.9, 0.8, 0.7]))), 1)
    assert 6 < close.matvecs <= 20


def test_what_it_cannot_say_is_nan_and_zero_ends_it() -> None:
    pairs = power_eigenpairs(matrix_operator(symmetric(Tensor([0.0, 0.0, 0.0]))), 2)
    assert pairs.values.tolist() == [0.0, 0.0]
    assert pairs.matvecs == 2
    assert bool(pairs.residuals.isnan().all())
    assert bool(pairs.stderr_data.isnan().all())
    assert not pairs.converged
    assert not pairs.certified.any()
