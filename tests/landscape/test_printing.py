"""What results print, and what a Hessian takes as its data."""

import matplotlib.pyplot as plt
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fedscope.errors import UserError
from fedscope.figures.spectrum.densities import density_figure
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.landscape import (
    Batches,
    Hessian,
    diagonal,
    eigen_directions,
    spectral_density,
    surface,
    top_eigenpairs,
    trace,
)


def _loader(shuffle: bool = False) -> DataLoader[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(60, 12, generator=generator), torch.arange(60) % 3
    return DataLoader(TensorDataset(inputs, targets), batch_size=6, shuffle=shuffle, generator=generator)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 3))


def test_a_hessian_takes_a_loader_and_runs_through_it_once() -> None:
    model, loss = _model(), nn.CrossEntropyLoss()
    shuffled = Hessian(model, loss, _loader(shuffle=True))
    assert shuffled.weights == (6,) * 10
    v = torch.ones(shuffled.shape[0])
    assert torch.equal(shuffled.matvec(v), shuffled.matvec(v))
    expected = Hessian(model, loss, Batches.from_iterable(_loader())).matvec(v)
    torch.testing.assert_close(shuffled.matvec(v), expected)
    plane = surface(model, loss, iter(_loader()), directions=(v,), values=([0.0],))
    inputs, targets = _loader().dataset[:]
    assert plane.center_loss == pytest.approx(float(loss(model(inputs), targets).detach()))
    with pytest.raises(UserError, match="pair"):
        Hessian(model, loss, [torch.ones(2, 12)])


def test_results_print_their_numbers_and_no_basis_and_are_drawn() -> None:
    model, loss = _model(), nn.CrossEntropyLoss()
    operator = Hessian(model, loss, _loader())
    pairs = top_eigenpairs(operator, k=2)
    density = spectral_density(operator, probes=2, steps=10)
    plane = surface(model, loss, _loader(), directions=eigen_directions(pairs), grid=5)
    for result in (pairs, trace(operator, probes=4), diagonal(operator, probes=8), density, plane):
        assert len(repr(result)) < 700
        assert "tensor(" not in repr(result)
        assert "\n" not in repr(result)
    assert f"values=[{pairs.values[0]:.6g}, {pairs.values[1]:.6g}]" in repr(pairs)
    assert "subspace=<Subspace>" in repr(pairs)
    for figure in (density_figure([density, density]), landscape_figure([plane])):
        assert figure.axes
        plt.close(figure)
