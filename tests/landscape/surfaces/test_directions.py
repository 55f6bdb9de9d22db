import pytest
import torch
from torch import nn

from fedscope.errors import UserError
from fedscope.landscape import eigen_directions, random_directions, top_eigenpairs
from tests.landscape.cases import convnet, matrix_operator, symmetric


def test_eigen_directions_are_unit_eigenvectors_with_a_fixed_sign() -> None:
    matrix = symmetric(torch.linspace(0, 1, 20) ** 2)
    several = [
        eigen_directions(
            top_eigenpairs(
                matrix_operator(matrix), k=2, tol=1e-10, generator=torch.Generator().manual_seed(seed)
            )
        )
        for seed in range(4)
    ]
    for found in several:
        for vector, reference in zip(found.vectors, several[0].vectors, strict=True):
            torch.testing.assert_close(vector, reference, rtol=0, atol=1e-7)
            assert float(vector.norm()) == pytest.approx(1)
            assert float(vector[vector.abs().argmax()]) > 0
    assert several[0].name == "eigen"
    with pytest.raises(UserError, match="k = 2"):
        eigen_directions(top_eigenpairs(matrix_operator(matrix), k=1))


def test_random_directions_have_the_filters_norms() -> None:
    model = convnet().model
    model[0].weight.requires_grad_(False)[0] *= 7  # type: ignore[index]
    model.requires_grad_(True)
    found = random_directions(model)
    for vector in found.vectors:
        pieces = torch.split(vector, [p.numel() for p in model.parameters()])
        for piece, p in zip(pieces, model.parameters(), strict=True):
            if p.ndim < 2:
                assert float(piece.abs().max()) == 0
            else:
                direction = piece.view(p.shape).flatten(1)
                torch.testing.assert_close(direction.norm(dim=1), p.detach().flatten(1).norm(dim=1))
    assert not torch.equal(*found.vectors)
    assert torch.equal(found.vectors[0], random_directions(model).vectors[0])


def test_random_directions_leave_out_frozen_parameters_and_dead_filters() -> None:
    frozen, trained = nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 2)
    with torch.no_grad():
        trained.weight[0] = 0
    first, _ = random_directions(nn.Sequential(frozen, trained)).vectors
    assert first.shape == (6,)
    assert first[:2].tolist() == [0, 0]
    assert float(first[2:4].norm()) > 0
