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


@pytest.mark.parametrize(
    ("kind", "groups"), [(nn.ConvTranspose2d, 1), (nn.ConvTranspose2d, 2), (nn.ConvTranspose1d, 3)]
)
def test_filters_of_a_transposed_convolution_are_those_of_its_output_channels(
    kind: type[nn.ConvTranspose1d | nn.ConvTranspose2d], groups: int
) -> None:
    torch.manual_seed(0)
    layer = kind(6, 12, 3, groups=groups)
    with torch.no_grad():
        layer.weight *= torch.linspace(0.1, 3, 12 // groups).view(1, -1, *[1] * (layer.weight.ndim - 2))
    direction = random_directions(layer).vectors[0][: layer.weight.numel()].view(layer.weight.shape)
    for group in range(groups):
        inputs = slice(group * 6 // groups, (group + 1) * 6 // groups)
        for output in range(12 // groups):
            own, ours = (tensor[inputs, output].norm() for tensor in (layer.weight.detach(), direction))
            torch.testing.assert_close(ours, own)


@pytest.mark.parametrize("biases_alone", [True, False])
def test_random_directions_of_no_filter_are_refused(biases_alone: bool) -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.mul_(float(biases_alone))
    model.weight.requires_grad_(not biases_alone)
    with pytest.raises(UserError, match="filters"):
        random_directions(model)
