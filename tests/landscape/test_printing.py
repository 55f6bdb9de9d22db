"""What results print, and what a Hessian takes as its data."""

import json
import math
from dataclasses import fields

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
    Eigenpairs,
    GaussNewton,
    Hessian,
    Trace,
    cross_client,
    diagonal,
    eigen_directions,
    random_directions,
    spectral_density,
    surface,
    top_eigenpairs,
    trace,
)
from fedscope.landscape.printing import Printed
from fedscope.landscape.published.estimators import published_eigenpairs, published_trace


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


def _results() -> list[Printed]:
    """One of every kind that a function of the analysis returns."""
    model, loss = _model(), nn.CrossEntropyLoss()
    H = Hessian(model, loss, _loader())
    G = GaussNewton(model, loss, _loader())
    pairs, total = top_eigenpairs(H, k=2), trace(H, probes=12, keep=2)
    assert pairs.subspace
    assert total.probed
    directions = eigen_directions(pairs)
    return [
        pairs, pairs.subspace, pairs.population(), total, total.probed, diagonal(H, probes=8),
        spectral_density(H, probes=2, steps=10), cross_client([H, G], probes=8, groups=4),
        H.product(torch.ones(H.shape[0]), onto=pairs.vectors.T),
        directions, random_directions(model), surface(model, loss, _loader(), directions=directions, grid=5),
        published_trace(H), published_eigenpairs(H, k=2),
    ]  # fmt: skip


def test_results_are_plain_data() -> None:
    for result in _results():
        small, whole = result.to_dict(), result.to_dict(most=None)
        assert list(small) == list(whole) == [field.name for field in fields(result)]  # type: ignore[arg-type]
        assert json.dumps(json.loads(json.dumps(whole))) == json.dumps(whole)
        for name, value in whole.items():
            of = getattr(result, name)
            if isinstance(of, torch.Tensor):
                torch.testing.assert_close(
                    torch.tensor(value, dtype=of.dtype).view(of.shape), of, rtol=0, atol=0, equal_nan=True
                )
                assert small[name] == (value if of.numel() <= 1000 else small[name])


def test_large_tensors_are_told_by_their_shape_and_numbers_that_are_none_stay() -> None:
    values = torch.tensor([3.0, math.nan, -math.inf], dtype=torch.float64)
    pairs = Eigenpairs.bare(values, torch.ones(400, 3), 7, 0)
    found = pairs.to_dict()
    assert found["vectors"] == {"shape": [400, 3], "dtype": "float32"}
    assert found["values"][0] == 3
    assert math.isnan(found["values"][1])
    assert found["values"][2] == -math.inf
    assert math.isnan(found["noise"])
    assert found["subspace"] is None
    assert (found["matvecs"], found["converged"], found["certified"]) == (7, False, [False] * 3)
    assert pairs.to_dict(most=None)["vectors"] == [[1.0] * 3] * 400
    many = Trace(1.0, 0.1, 0.1, 2000, 2000, 0, samples=(0.5,) * 2000)
    assert many.to_dict()["samples"] == {"shape": [2000], "dtype": "float"}


def test_results_print_their_numbers_and_no_basis_and_are_drawn() -> None:
    model, loss = _model(), nn.CrossEntropyLoss()
    operator = Hessian(model, loss, _loader())
    pairs = top_eigenpairs(operator, k=2)
    density = spectral_density(operator, probes=2, steps=10)
    plane = surface(model, loss, _loader(), directions=eigen_directions(pairs), grid=5)
    for result in _results():
        assert len(repr(result)) < 1200
        assert "tensor(" not in repr(result)
        assert "\n" not in repr(result)
    assert f"values=[{pairs.values[0]:.6g}, {pairs.values[1]:.6g}]" in repr(pairs)
    assert "subspace=<Subspace>" in repr(pairs)
    for figure in (density_figure([density, density]), landscape_figure([plane])):
        assert figure.axes
        plt.close(figure)
