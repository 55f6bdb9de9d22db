import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Batches, Hessian
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.operators.finite_checks import check_finite, check_products


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()


def _check(
    model: nn.Module,
    *,
    inputs: Tensor | None = None,
    targets: Tensor | None = None,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
) -> None:
    inputs = torch.arange(48.0).view(12, 4) / 48 if inputs is None else inputs
    targets = torch.arange(12) % 3 if targets is None else targets
    check_finite("a.pt", model, FlatLoss(model, loss, Batches(inputs, targets, 5)))


def test_what_is_finite_passes() -> None:
    _check(_network())


def test_weights_are_named_with_their_entries() -> None:
    model = _network()
    with torch.no_grad():
        for p in model.parameters():
            p.view(-1)[:2] = math.nan
    with pytest.raises(UserError) as error:
        _check(model)
    assert str(error.value).startswith(
        "a.pt has weights that are not finite: 0.weight (2 of 24 entries), 0.bias (2 of 6 entries), "
        "1.weight (2 of 6 entries) and 3 more tensors; "
    )


def test_weights_that_the_loss_does_not_see_count_too() -> None:
    model = _network()
    model.register_parameter("spare", nn.Parameter(torch.tensor([math.inf]), requires_grad=False))
    with pytest.raises(UserError, match=r"spare \(1 of 1 entries\)"):
        _check(model)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_samples_are_named(value: float) -> None:
    inputs = torch.ones(12, 4)
    inputs[7, 1:3] = inputs[8, 0] = value
    with pytest.raises(UserError, match=r"inputs .*sample 7 \(2 .*batch 2 of 3"):
        _check(_network(), inputs=inputs)
    targets = torch.zeros(12, 3)
    targets[11, 2] = value
    with pytest.raises(UserError, match=r"targets .*sample 11 \(1 .*batch 3 of 3"):
        _check(_network(), targets=targets, loss=nn.functional.mse_loss)


def test_a_mask_of_minus_infinity_is_no_fault() -> None:
    def masked(output: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(output, targets[:, 1].long()) + targets[:, 0].exp().mean()

    targets = torch.stack([torch.full((12,), -math.inf), torch.arange(12.0) % 3], dim=1)
    _check(_network(), targets=targets, loss=masked)


def test_statistics_are_named_unless_they_are_replaced() -> None:
    model = _network()
    model.get_buffer("1.running_var")[0] = math.nan
    with pytest.raises(UserError, match=r"1.running_var \(1 of 6 entries\).*--bn recalibrate"):
        _check(model)
    batches = Batches(torch.randn(12, 4), torch.arange(12) % 3, 6)
    check_finite("a.pt", model, FlatLoss(model, cross_entropy, batches, bn="recalibrate"))


def test_outputs_and_the_loss_are_told_apart() -> None:
    class Vast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _network()

        def forward(self, x: Tensor) -> Tensor:
            vast: Tensor = (self.body(x) + 100).exp()
            return vast

    with pytest.raises(UserError, match=r"15 of 15 .*a\.pt .*batch 1 of 3"):
        _check(Vast())
    with pytest.raises(UserError, match=r"a\.pt .*-inf .*batch 1 of 3"):
        _check(_network(), loss=lambda output, _: (output * 0).sum().log())


def test_a_second_derivative_that_is_not_finite_is_refused_with_its_batch() -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1)
    inputs = torch.ones(6, 2)
    inputs[4] = 0
    batches = Batches(inputs, torch.zeros(6, 1), 3)
    operator = Hessian(model, lambda output, _: output.square().sum(1).sqrt().mean(), batches)
    check_finite("a.pt", model, operator.loss)
    product = operator.matvec(torch.ones(2))
    with pytest.raises(UserError, match=r"second derivative .*batch 2 of 2"):
        check_products("a.pt", operator, product)
