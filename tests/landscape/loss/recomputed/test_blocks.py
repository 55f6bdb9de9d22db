"""Blocks that are computed again: the same network, and less that a graph holds on to."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian
from fedscope.landscape.loss.recomputed.blocks import Blocks
from fedscope.landscape.operators.empirical_risk import LossOperator


class Layer(nn.Module):
    """Takes and gives more than a tensor, and shares a parameter with its neighbour."""

    def __init__(self, shared: nn.Parameter) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(6, 60), nn.Linear(60, 6)
        self.shared = shared

    def forward(self, x: Tensor, *, state: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        x = x + self.narrow(torch.tanh(self.wide(x * self.shared)) ** 2) * state["mask"]
        return x, {**state, "sum": state["sum"] + x.sum(1), "depth": state["depth"] + 1}


class Deep(nn.Module):
    """Five such layers."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Parameter(torch.randn(6))
        self.layers = nn.ModuleList(Layer(shared) for _ in range(5))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        state: dict[str, Any] = {
            "mask": torch.tensor([1.0, 0, 1, 1, 1, 1], dtype=x.dtype),
            "sum": x.sum(1),
            "depth": 0,
        }
        for layer in self.layers:
            x, state = layer(x, state=state)
        assert state["depth"] == 5
        logits: Tensor = self.head(x) * state["sum"][:, None]
        return logits


@pytest.fixture
def model() -> Deep:
    torch.manual_seed(0)
    return Deep().double()


@pytest.fixture
def data() -> Batches:
    torch.manual_seed(1)
    return Batches(torch.randn(24, 6), torch.randint(3, (24,)), 8)


@pytest.mark.parametrize("kind", [Hessian, GaussNewton, EmpiricalFisher])
def test_products_are_the_same(kind: type[LossOperator], model: Deep, data: Batches) -> None:
    plain, again = kind(model, nn.CrossEntropyLoss(), data), kind(model, nn.CrossEntropyLoss(), data)
    again.loss.recomputes_blocks = True
    v = torch.randn(plain.shape[0], dtype=torch.float64)
    torch.testing.assert_close(again @ v, plain @ v)
    torch.testing.assert_close(again @ v, plain @ v)  # with kept graphs
    torch.testing.assert_close(again.gradient(), plain.gradient())
    assert again.plan.size < plain.plan.size
    assert "computed again" in str(again.plan)
    assert "computed again" not in str(plain.plan)


def test_some_parameters_alone(model: Deep, data: Batches) -> None:
    names = ["layers.2.*", "layers.*.shared"]
    plain, again = (Hessian(model, nn.CrossEntropyLoss(), data, parameters=names) for _ in range(2))
    again.loss.recomputes_blocks = True
    v = torch.randn(plain.shape[0], dtype=torch.float64)
    torch.testing.assert_close(again @ v, plain @ v)


def test_the_plan_takes_them_where_one_sample_exceeds_the_memory(model: Deep, data: Batches) -> None:
    plain = Hessian(model, nn.CrossEntropyLoss(), data, memory=1 << 30)
    assert not plain.loss.recomputes_blocks
    one = plain.plan.size / plain.plan.microbatch
    scarce = Hessian(model, nn.CrossEntropyLoss(), data, memory=int(one / 2))
    v = torch.randn(plain.shape[0], dtype=torch.float64)
    torch.testing.assert_close(scarce @ v, plain @ v)
    assert scarce.loss.recomputes_blocks
    assert "computed again" in str(scarce.plan)


def test_finite_differences_take_them_too(model: Deep, data: Batches) -> None:
    plain, again = (
        Hessian(model, nn.CrossEntropyLoss(), data, products="finite-differences") for _ in range(2)
    )
    again.loss.recomputes_blocks = True
    v = torch.randn(plain.shape[0], dtype=torch.float64)
    one, other = plain.product(v), again.product(v)
    assert float((one.vector - other.vector).norm()) <= one.error + other.error
    assert again.plan.size < plain.plan.size


def test_the_network_is_put_back(model: Deep) -> None:
    before, x = copy.deepcopy(model.state_dict()), torch.randn(2, 6, dtype=torch.float64)
    expected, blocks = model(x), Blocks(model)
    assert blocks.found
    with blocks():
        torch.testing.assert_close(model(x), expected)
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected)
    assert all("forward" not in vars(layer) for layer in model.layers)
    assert all(isinstance(layer.shared, nn.Parameter) for layer in model.layers)
    assert all(torch.equal(now, before[name]) for name, now in model.state_dict().items())


def test_a_network_without_blocks() -> None:
    assert not Blocks(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))).found
