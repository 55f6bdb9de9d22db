"""A faster form is taken where it is the same network in value and product, and else leaves no trace."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fedscope.landscape.loss.forms import PLAIN, Form, FormOutput, fastest
from fedscope.landscape.loss.kernels.bn_folding import Fold
from fedscope.landscape.loss.kernels.conv_double_backward import LAYOUTS

SAME = FormOutput(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval()


def _fastest(model: nn.Module, *trials: FormOutput | Exception) -> tuple[Form, int]:
    """Return the form that is taken where the network's trials, the plain one's first, are these."""
    left = list(trials)

    def attempt() -> FormOutput:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    evaluate: Callable[[], Tensor] = lambda: model(torch.ones(1, 1, 4, 4))  # noqa: E731
    return fastest(Fold(model), evaluate, attempt), len(left)


def _is_plain(model: nn.Module) -> bool:
    return not any("forward" in module.__dict__ for module in model.modules())


def test_the_first_form_that_is_the_same_is_taken() -> None:
    model = _network()
    assert _fastest(model, SAME, SAME, SAME) == (Form(fast=True), 1)
    assert not _is_plain(model)
    rounded = FormOutput(SAME.numbers * (1 + 1e-6), torch.tensor([3.01, 4.0]))  # a kink crossed
    assert _fastest(_network(), SAME, rounded)[0] == Form(fast=True)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (FormOutput(torch.tensor([1.0, 2.1]), SAME.product), "its outputs would differ"),
        (FormOutput(SAME.numbers, torch.tensor([3.0, 5.0])), "its products would differ"),
        (FormOutput(SAME.numbers, torch.tensor([3.0, math.nan])), "its products would differ"),
        (FormOutput(SAME.numbers, None), "its products have no second derivative"),
        (ValueError("no such shape\nat all"), "ValueError: no such shape"),
    ],
)
def test_a_form_that_is_another_network_is_taken_out_again(
    other: FormOutput | Exception, reason: str
) -> None:
    model = _network()
    form, left = _fastest(model, SAME, *[other] * len(LAYOUTS))
    assert (form, left) == (Form(fast=False, reason=reason), 0)
    assert _is_plain(model)
    assert form.entry == {"form": "plain", "form_reason": reason}


def test_a_later_form_may_do() -> None:
    assert _fastest(_network(), SAME, FormOutput(SAME.numbers * 2, None), SAME) == (Form(fast=True), 0)


def test_what_has_no_second_derivative_or_nothing_to_make_faster_stays_as_it_is() -> None:
    form, _ = _fastest(_network(), FormOutput(SAME.numbers, None))
    assert form == Form(fast=False, reason="an operation of the network has no second derivative")
    assert _fastest(nn.Linear(2, 2)) == (PLAIN, 0)
