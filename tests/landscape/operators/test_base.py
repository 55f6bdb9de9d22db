from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian, LambdaOperator
from tests.landscape.cases import Case, mlp


def test_products_are_the_dense_hessian(case: Case, dense: Tensor) -> None:
    eye = torch.eye(len(dense), dtype=torch.float64)
    torch.testing.assert_close(case.operator.matmat(eye), dense, rtol=1e-10, atol=1e-12)


def test_blocks_name_the_parameters_that_require_a_gradient(case: Case) -> None:
    operator = case.operator
    assert [name for name, _ in operator.blocks] == case.names == list(operator.names)
    assert sum(operator.numels) == operator.shape[0] == len(case.weights)


def test_unused_parameters_have_zero_rows() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle = nn.Parameter(torch.ones(2))
            self.used = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return (x * self.used).sum(1)

    operator = Hessian(Two(), nn.functional.mse_loss, Batches(torch.eye(2), torch.zeros(2)))
    torch.testing.assert_close(operator.matvec(torch.ones(4)), torch.tensor([0.0, 0.0, 1.0, 1.0]))


def test_how_the_samples_are_batched_changes_nothing() -> None:
    case = mlp()
    v = torch.randn(51, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ragged = case.operator.matvec(v)
    alone = Hessian(case.model, case.loss_fn, Batches(case.inputs, case.targets, 23))
    torch.testing.assert_close(ragged, alone.matvec(v))
    assert torch.equal(alone.matvec(v), alone.matvec(v))


def test_forms_are_each_batchs_own_quadratic_form() -> None:
    case = mlp()
    v = torch.randn(51, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    forms = case.operator.product(v).forms
    assert forms is not None
    expected = [
        v @ Hessian(case.model, case.loss_fn, Batches(inputs, targets)).matvec(v)
        for inputs, targets in case.batches
    ]
    torch.testing.assert_close(forms, torch.stack(expected))
    assert case.operator.weights == (8, 8, 7)


def test_a_loss_linear_in_the_weights_has_no_curvature() -> None:
    model = nn.Linear(2, 1)
    operator = Hessian(model, lambda output, _: output.mean(), Batches(torch.ones(4, 2), torch.ones(4)))
    assert torch.equal(operator.matvec(torch.ones(3)), torch.zeros(3))


def test_float32_products_agree_with_float64(case: Case, dense: Tensor) -> None:
    operator = Hessian(case.model.float(), case.loss_fn, case.batches)
    v = torch.randn(len(dense), generator=torch.Generator().manual_seed(0))
    product = operator.matvec(v)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), dense @ v.double(), rtol=1e-4, atol=1e-5)


def test_attention_and_no_grad_and_autocast_do_not_get_in_the_way() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 3))
    batches = Batches(torch.randn(6, 3, 8), torch.randint(3, (6,)), 4)
    operator = Hessian(model, nn.functional.cross_entropy, batches)
    v, w = torch.randn(2, operator.shape[0])
    with torch.no_grad(), torch.autocast("cpu"):
        image = operator.matvec(v)
    assert torch.equal(image, operator.matvec(v))
    torch.testing.assert_close(w @ image, v @ operator.matvec(w), rtol=1e-3, atol=1e-4)


def test_a_compiled_model_is_looked_through() -> None:
    case = mlp()
    v = torch.ones(51, dtype=torch.float64)
    compiled = cast(nn.Module, torch.compile(case.model, backend="eager"))
    operator = Hessian(compiled, case.loss_fn, case.batches)
    assert torch.equal(operator.matvec(v), case.operator.matvec(v))
    assert operator.names == case.operator.names


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * 1


class _Undifferentiable(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = _Once.apply(super().forward(x))  # type: ignore[no-untyped-call]
        return output


class _Distances(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        return x + torch.cdist(x, x, p=3).sum()


@pytest.mark.parametrize(("layer", "word"), [(_Undifferentiable, "once_diff"), (_Distances, "cdist")])
def test_an_operation_without_a_second_derivative_is_refused(layer: type[nn.Linear], word: str) -> None:
    # autograd itself would return a product without the terms of the first of these.
    model = nn.Sequential(nn.Linear(2, 2), layer(2, 1))
    operator = Hessian(model, nn.functional.mse_loss, Batches(torch.ones(3, 2), torch.ones(3, 1)))
    with pytest.raises(UserError, match=word):
        operator.matvec(torch.ones(9))


def test_unusable_models_and_losses_are_refused() -> None:
    batches = Batches(torch.ones(3, 2), torch.ones(3, 1))
    with pytest.raises(UserError, match="requires_grad_"):
        Hessian(nn.Linear(2, 1).requires_grad_(False), nn.functional.mse_loss, batches)
    with pytest.raises(UserError, match="several kinds"):
        Hessian(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1).double()), nn.functional.mse_loss, batches)
    with pytest.raises(UserError, match="scalar"):
        Hessian(nn.Linear(2, 1), lambda x, y: (x - y) ** 2, batches)
    constant = Hessian(nn.Linear(2, 1), lambda x, y: y.mean(), batches)
    with pytest.raises(UserError, match="does not depend"):
        constant.matvec(torch.ones(3))


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected \(51,\)"):
        mlp().operator.matvec(torch.ones(50))


def test_a_block_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="add up"):
        LambdaOperator(lambda v: v, 2, blocks=(("a", 1),))


def test_a_product_has_the_form_of_what_is_multiplied(case: Case, dense: Tensor) -> None:
    H, n = case.operator, len(dense)
    V = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(H @ V[:, 0], dense @ V[:, 0])
    torch.testing.assert_close(H @ V, dense @ V)
    assert (H @ V[:, :0]).shape == (n, 0)
    named = H.unflatten(V[:, 1])
    assert {name: v.shape for name, v in named.items()} == {
        name: p.shape for name, p in case.model.named_parameters() if p.requires_grad
    }
    found = H @ named
    assert list(found) == case.names
    torch.testing.assert_close(H.flatten(found), dense @ V[:, 1])


def test_what_cannot_be_multiplied_is_refused() -> None:
    H = mlp().operator
    for shape in [(50,), (50, 2), (3, 51), (51, 1, 1), ()]:
        with pytest.raises(UserError, match=r"takes \(51,\)"):
            H @ torch.ones(shape)
    with pytest.raises(UserError, match="to_scipy"):
        H @ np.ones(51)  # type: ignore[operator]
