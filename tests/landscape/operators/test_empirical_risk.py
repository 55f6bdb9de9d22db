"""The gradient of an operator's mean loss; its products are tested by kind and by what they are made of."""

import pytest
import torch

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian
from fedscope.landscape.operators.empirical_risk import LossOperator
from tests.landscape.cases import Case, convnet, mlp


@pytest.mark.parametrize("kind", [Hessian, GaussNewton, EmpiricalFisher])
def test_the_gradient_is_that_of_the_mean_loss(case: Case, kind: type[LossOperator]) -> None:
    operator = kind(case.model, case.loss_fn, case.batches)
    weights = case.weights.requires_grad_()
    (expected,) = torch.autograd.grad(case.loss_at(weights), weights)
    operator.matvec(torch.ones(len(weights), dtype=torch.float64))
    torch.testing.assert_close(operator.gradient(), expected)
    torch.testing.assert_close(operator.unflatten(operator.gradient()), operator.unflatten(expected))


def test_the_gradient_of_a_block_is_a_part_of_it() -> None:
    case = mlp()
    whole, last = (
        Hessian(case.model, case.loss_fn, case.batches, parameters=names).gradient()
        for names in (None, "2.*")
    )
    torch.testing.assert_close(last, whole[-21:])


def test_micro_batches_and_other_points_do_not_change_the_gradient() -> None:
    case = convnet()
    operator = Hessian(case.model, case.loss_fn, case.batches, memory=1 << 12)
    assert operator.plan.graphs > len(case.batches)
    expected = operator.gradient()
    operator.loss.value(torch.zeros_like(expected))
    assert torch.equal(operator.gradient(), expected)
    torch.testing.assert_close(expected, case.operator.gradient())


def test_a_loss_without_a_gradient_is_refused() -> None:
    model = torch.nn.Linear(2, 1)
    operator = Hessian(model, lambda x, y: y.mean(), Batches(torch.ones(3, 2), torch.ones(3, 1)))
    with pytest.raises(UserError, match="does not depend"):
        operator.gradient()
