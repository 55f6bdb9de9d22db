import math

import pytest
import torch

from fedscope.landscape import spectral_density
from fedscope.landscape.spectral.gauss_quadrature import share_limits
from tests.landscape.cases import matrix_operator


@pytest.mark.parametrize("steps", [2, 5, 12])
def test_the_share_of_the_measure_lies_between(steps: int) -> None:
    """Of a diagonal operator every sign probe has the whole measure, which is known."""
    generator = torch.Generator().manual_seed(steps)
    spectrum = torch.randn(60, generator=generator, dtype=torch.float64).exp() - 0.5
    found = spectral_density(matrix_operator(torch.diag(spectrum)), probes=1, steps=steps)
    for at in torch.linspace(-0.6, 4, 47).tolist():
        low, high = share_limits(found.nodes[0], found.weights[0], at)
        share = float((spectrum < at).double().mean())
        assert low - 1e-12 <= share <= high + 1e-12
        assert low <= float(found.weights[0][found.nodes[0] < at].sum()) <= high


def test_two_nodes_by_hand() -> None:
    """Nodes −1 and 1 of weight ½: beside a node at x the other is at −1/x, and x weighs 1/(1 + x²)."""
    nodes, weights = torch.tensor([-1.0, 1.0]).double(), torch.tensor([0.5, 0.5]).double()
    assert share_limits(nodes, weights, 2.0) == pytest.approx((0.8, 1.0))
    assert share_limits(nodes, weights, -0.5) == pytest.approx((0.0, 0.8))
    for close in (0.0, 1e-13, -1e-13):  # the other node is at infinity, or nearly
        assert share_limits(nodes, weights, close) == pytest.approx((0.0, 1.0))


def test_one_node_and_none() -> None:
    node, weight = torch.tensor([2.0]).double(), torch.ones(1).double()
    assert share_limits(node, weight, 3.0) == (0, 1)  # all that one step knows is the mean
    assert all(map(math.isnan, share_limits(node * math.nan, weight * math.nan, 1.0)))


def test_nodes_without_weight_are_none() -> None:
    nodes, weights = torch.tensor([-1.0, 1.0, 0.0]).double(), torch.tensor([0.5, 0.5, 0.0]).double()
    assert share_limits(nodes, weights, 2.0) == pytest.approx((0.8, 1.0))
