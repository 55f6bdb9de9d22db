import math

import pytest
import torch
from torch import Tensor

from fedscope.errors import UserError
from fedscope.landscape.spectral.subspace_overlap import principal_cosines, subspace_overlap


def _orthonormal(n: int, k: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    basis: Tensor = torch.linalg.qr(torch.randn(n, k, generator=generator, dtype=torch.float64))[0]
    return basis


def test_equal_spaces_overlap_wholly_in_any_basis() -> None:
    A = _orthonormal(40_000, 5, 0)
    assert subspace_overlap(A, A @ _orthonormal(5, 5, 1)) == pytest.approx(1)
    assert subspace_overlap(A.float(), A.float()) == pytest.approx(1, abs=1e-6)


def test_orthogonal_spaces_do_not_overlap() -> None:
    Q = _orthonormal(30, 6, 0)
    assert subspace_overlap(Q[:, :3], Q[:, 3:]) == pytest.approx(0, abs=1e-14)
    assert subspace_overlap(Q[:, :4], Q[:, 2:]) == pytest.approx(0.5)


def test_random_spaces_overlap_by_k_over_n() -> None:
    found = [subspace_overlap(_orthonormal(60, 6, 2 * i), _orthonormal(60, 6, 2 * i + 1)) for i in range(200)]
    assert sum(found) / 200 == pytest.approx(6 / 60, abs=0.004)  # four standard errors


def test_the_cosines_are_those_of_known_angles() -> None:
    angles = torch.tensor([0.2, 1.0], dtype=torch.float64)
    A, B = torch.eye(4, 2).double(), torch.zeros(4, 2).double()
    B[[0, 1], [0, 1]], B[[2, 3], [0, 1]] = angles.cos(), angles.sin()
    assert principal_cosines(A, B).tolist() == pytest.approx([math.cos(0.2), math.cos(1.0)])
    assert subspace_overlap(A, B) == pytest.approx((math.cos(0.2) ** 2 + math.cos(1.0) ** 2) / 2)


@pytest.mark.parametrize("shape", [(3, 2), (4, 1), (4,), (4, 0)])
def test_bases_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="equal shapes"):
        subspace_overlap(torch.ones(4, 2) if shape != (4, 0) else torch.ones(4, 0), torch.ones(shape))
