"""Gauss–Newton and the empirical Fisher against dense matrices made of Jacobians; blocks of operators."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, hessian, jacrev

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian, Operator
from tests.landscape.cases import Case, mlp


def outputs_at(case: Case) -> Callable[[Tensor], Tensor]:
    """The eval-mode outputs of all samples at flat trainable parameters."""

    def outputs(flat: Tensor) -> Tensor:
        named, begin = {}, 0
        for name, p in case.model.named_parameters():
            if p.requires_grad:
                named[name] = flat[begin : begin + p.numel()].view(p.shape)
                begin += p.numel()
        result: Tensor = functional_call(case.model.eval(), named, (case.inputs,))
        return result

    return outputs


def derivative(transform: Callable[..., Any], function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
        result: Tensor = transform(function)(at)
    return result


def dense_gauss_newton(case: Case) -> Tensor:
    outputs = outputs_at(case)
    J = derivative(jacrev, outputs, case.weights).flatten(0, 1)  # (N·C, n)
    point = outputs(case.weights).detach()
    inner = derivative(hessian, lambda o: case.loss_fn(o, case.targets), point)
    size = point.numel()
    return J.T @ inner.reshape(size, size) @ J


def dense_fisher(case: Case) -> Tensor:
    outputs = outputs_at(case)

    def losses(flat: Tensor) -> Tensor:
        found = outputs(flat)
        return torch.stack(
            [case.loss_fn(o, t) for o, t in zip(found.split(1), case.targets.split(1), strict=True)]
        )

    G = derivative(jacrev, losses, case.weights)  # (N, n)
    return G.T @ G / len(G)


KINDS: list[tuple[type[Operator], Callable[[Case], Tensor]]] = [
    (GaussNewton, dense_gauss_newton),
    (EmpiricalFisher, dense_fisher),
]


@pytest.mark.parametrize(("kind", "oracle"), KINDS)
def test_products_are_those_of_the_dense_matrix(
    case: Case, kind: Callable[..., Operator], oracle: Callable[[Case], Tensor]
) -> None:
    operator, expected = kind(case.model, case.loss_fn, case.batches), oracle(case)
    eye = torch.eye(len(expected), dtype=torch.float64)
    torch.testing.assert_close(operator.matmat(eye), expected, rtol=1e-10, atol=1e-12)
    alone = kind(case.model, case.loss_fn, Batches(case.inputs, case.targets, len(case.inputs)))
    v = torch.randn(len(expected), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(alone.matvec(v), operator.matvec(v))
    assert torch.equal(alone.matvec(v), alone.matvec(v))  # from the graph that was kept


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS])
def test_they_are_positive_and_forms_are_each_batchs_own(kind: Callable[..., Operator]) -> None:
    case = mlp()
    operator = kind(case.model, case.loss_fn, case.batches)
    v = torch.randn(51, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    product = operator.product(v)
    assert product.forms is not None
    assert bool((product.forms >= 0).all())
    own = [v @ kind(case.model, case.loss_fn, Batches(x, y)).matvec(v) for x, y in case.batches]
    torch.testing.assert_close(product.forms, torch.stack(own))
    shares = torch.tensor(operator.weights, dtype=torch.float64) / 23
    torch.testing.assert_close(product.forms @ shares, v @ product.vector)


def test_gauss_newton_is_the_fisher_of_labels_drawn_from_the_model() -> None:
    """For cross-entropy, Σ_c p_c g_c g_cᵀ over all labels c (Martens 2020, section 9)."""
    case = mlp()
    chance = outputs_at(case)(case.weights).softmax(1).detach()
    total = torch.zeros(51, 51, dtype=torch.float64)
    for label in range(3):
        for row in range(23):
            target = torch.tensor([label])

            def loss(flat: Tensor, row: int = row, target: Tensor = target) -> Tensor:
                return case.loss_fn(outputs_at(case)(flat)[row : row + 1], target)

            g = derivative(jacrev, loss, case.weights)
            total += chance[row, label] * torch.outer(g, g) / 23
    operator = GaussNewton(case.model, case.loss_fn, case.batches)
    torch.testing.assert_close(operator.matmat(torch.eye(51, dtype=torch.float64)), total)


def test_where_the_outputs_are_linear_gauss_newton_is_the_hessian() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    batches = Batches(torch.randn(9, 4, dtype=torch.float64), torch.randint(3, (9,)), 4)
    v = torch.randn(15, dtype=torch.float64)
    both = [kind(model, nn.functional.cross_entropy, batches).matvec(v) for kind in (GaussNewton, Hessian)]
    torch.testing.assert_close(*both)


def test_a_loss_linear_in_the_outputs_has_no_gauss_newton_curvature() -> None:
    operator = GaussNewton(mlp().model, lambda output, _: output.mean(), mlp().batches)
    assert torch.equal(operator.matvec(torch.ones(51, dtype=torch.float64)), torch.zeros(51).double())


@pytest.mark.parametrize("kind", [Hessian, GaussNewton, EmpiricalFisher])
@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["0.*"], ["0.weight", "0.bias"]),
        (["*.bias"], ["0.bias", "2.bias"]),
        (["2.weight"], ["2.weight"]),
        (["2.weight", "*"], ["0.weight", "0.bias", "2.weight", "2.bias"]),
    ],
)
def test_a_choice_of_parameters_is_a_diagonal_block(
    kind: Callable[..., Operator], patterns: list[str], names: list[str]
) -> None:
    case = mlp()
    whole = kind(case.model, case.loss_fn, case.batches)
    block = kind(case.model, case.loss_fn, case.batches, parameters=patterns)
    assert [name for name, _ in block.blocks] == names
    starts, begin = {}, 0
    for name, length in whole.blocks:
        starts[name] = range(begin, begin + length)
        begin += length
    rows = torch.tensor([row for name in names for row in starts[name]])
    matrix = whole.matmat(torch.eye(51, dtype=torch.float64))
    eye = torch.eye(len(rows), dtype=torch.float64)
    torch.testing.assert_close(block.matmat(eye), matrix[rows][:, rows])


def test_a_pattern_without_a_match_is_refused() -> None:
    case = mlp()
    with pytest.raises(UserError, match=r"'conv\*'.*0\.weight"):
        Hessian(case.model, case.loss_fn, case.batches, parameters=["0.*", "conv*"])


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        return 2 * gradient


class _Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Once.apply(x)  # type: ignore[no-untyped-call]
        return result


@pytest.mark.parametrize("kind", [GaussNewton, EmpiricalFisher])
def test_an_operation_without_a_second_derivative_is_refused(kind: Callable[..., Operator]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), _Doubling(), nn.Linear(2, 2))
    operator = kind(model, nn.functional.mse_loss, Batches(torch.ones(3, 2), torch.zeros(3, 2)))
    with pytest.raises(UserError, match="once_differentiable"):
        operator.matvec(torch.ones(12))
