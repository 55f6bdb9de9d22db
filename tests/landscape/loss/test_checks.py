"""What is refused before the first product, and what is made harmless instead."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.landscape.loss.checks import close, once_error, saved_tensors
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.kernels.derivatives import DifferentiableWeightNorm


class _Forgetful(torch.autograd.Function):
    """x², with a backward that forgets that it depends on the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        product: Tensor = 2 * x * gradient.detach()
        return product


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 1


class _Apply(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(x)
        return result


def _around(layer: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Tanh(), layer), nn.Linear(3, 2)).double()


def _operator(model: nn.Module) -> Hessian:
    inputs, targets = torch.linspace(-1, 1, 10).double().view(5, 2), torch.ones(5, 2).double()
    return Hessian(model, nn.functional.mse_loss, Batches(inputs, targets, 3))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_Once.apply, r"once_differentiable: _OnceBackward in module '1.1'"),
        (lambda x: x + torch.cdist(x, x, p=3).sum(), r"Cdist\w+ in module '1.1'"),
        (_Forgetful.apply, "second derivative is wrong: _Forgetful in module .1.1."),
        (lambda x: nn.functional.dropout(x, 0.5), "different outputs"),
    ],
)
def test_what_makes_products_wrong_is_named(function: Any, message: str) -> None:
    operator = _operator(_around(_Apply(function)))
    with pytest.raises(UserError, match=message):
        operator.matvec(torch.ones(operator.shape[0], dtype=torch.float64))


def test_what_a_graph_keeps_is_seen() -> None:
    x = torch.randn(3, requires_grad=True)
    assert {kept.data_ptr() for kept in saved_tensors([x * x])} == {x.data_ptr()}
    assert list(saved_tensors([x + x])) == []


def test_a_network_that_was_looked_at_is_left_without_hooks() -> None:
    model, x = _around(_Apply(_Once.apply)), torch.ones(5, 2).double()
    fresh = pickle.dumps(model)
    assert "module '1.1'" in str(once_error(model, lambda: model(x)))
    assert pickle.dumps(model) == fresh


class _Running(nn.Module):
    """Counts its evaluations in a buffer, by which it scales."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.seen, Tensor)
        self.seen += 1
        return x * self.seen.clone()


def test_statistics_updated_in_forward_are_put_back() -> None:
    v = torch.ones(17, dtype=torch.float64)
    operator = _operator(_around(_Running()))
    constant = _operator(_around(_Apply(lambda x: 2 * x)))
    torch.testing.assert_close(operator.matvec(v), constant.matvec(v))
    assert torch.equal(operator.matvec(v), operator.matvec(v))


def test_attention_recurrence_and_fused_layers_have_an_exact_equivalent() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1, enable_nested_tensor=False
    )
    lstm = nn.LSTM(4, 3, batch_first=True)
    head = nn.Linear(4, 2)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head, self.lstm, self.end = encoder, head, lstm, nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.end(self.lstm(self.encoder(x))[0][:, -1]) + self.head(x).mean(1)
            return logits

    batches = Batches(torch.randn(6, 3, 4), torch.randint(2, (6,)), 4)
    model = Model()
    loss = FlatLoss(model, nn.functional.cross_entropy, batches, parameters=["end.*"])
    with torch.enable_grad(), loss.exact():
        inputs, targets = next(iter(batches))
        graph = loss.on_batch(inputs, targets)
    with torch.no_grad(), loss.exact():
        assert torch.equal(loss.on_batch(inputs, targets), graph)
    operator = Hessian(model, nn.functional.cross_entropy, batches)
    u, v = torch.randn(2, operator.shape[0], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(u @ operator.matvec(v), v @ operator.matvec(u), rtol=1e-3, atol=1e-4)
    assert torch.backends.mha.get_fastpath_enabled()


def test_an_honest_function_of_ones_own_passes() -> None:
    operator = _operator(_around(_Apply(lambda x: x.exp())))
    assert operator.plan.kept == operator.plan.graphs == 2


def test_results_are_close_where_they_differ_by_rounding_beside_the_largest() -> None:
    """One part in 10⁹ of float64 numbers is no rounding, whatever their size; one in 10¹⁵ is."""
    for size in (1e-9, 1.0, 1e9):
        numbers = size * torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)
        assert close(numbers, numbers + 1e-15 * size, torch.float64)
        assert not close(numbers, numbers + 1e-6 * size, torch.float64)
    assert not close(torch.zeros(3, 2), torch.zeros(3), torch.float32)
    assert not close(torch.zeros(0, 2), torch.zeros(0), torch.float32)


def test_a_network_of_one_tensor_is_one() -> None:
    model = nn.Linear(2, 2, bias=False).double()
    operator = _operator(model)
    assert operator.names == ("weight",)
    assert operator.device == model.weight.device


def test_where_weight_norm_is_made_differentiable_all_else_is_as_it_was() -> None:
    with DifferentiableWeightNorm():
        assert torch.sum(torch.ones(2, 3), dim=0).tolist() == [2.0, 2.0, 2.0]
