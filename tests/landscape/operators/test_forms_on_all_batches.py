"""A faster form that is another network on some later samples is given up at the first product."""

from typing import Any

import pytest
import torch
from torch import nn

from fedscope.landscape import EmpiricalFisher, GaussNewton, Hessian, random_directions, surface
from fedscope.landscape.loss.checks import close, largest
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.forms import Form
from fedscope.landscape.operators.empirical_risk import LossOperator
from tests.landscape.cases import convnet
from tests.landscape.skipping import Own, images, skipping

KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher]
GIVEN_UP = Form(fast=False, reason="its loss would differ in batch 3 of 3")
cross_entropy = nn.functional.cross_entropy


def _vector(operator: LossOperator) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(operator.shape[0], dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [None, 4_000])
def test_products_are_those_of_the_network_as_it_is(kind: type[LossOperator], memory: int | None) -> None:
    operator = kind(skipping(), cross_entropy, images(), memory=memory)
    expected = kind(skipping(Own), cross_entropy, images())
    v = _vector(operator)
    assert operator.form == Form(fast=True)
    assert (operator.plan.microbatch < 5) == (memory is not None)
    found, own = operator.product(v), expected.product(v)
    torch.testing.assert_close(found.vector, own.vector, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.forms, own.forms, rtol=1e-10, atol=1e-12)
    assert operator.form == GIVEN_UP
    assert operator.form.entry["form_reason"] == GIVEN_UP.reason
    torch.testing.assert_close(operator.matvec(v), found.vector, rtol=0, atol=0)


def test_a_network_that_is_the_same_on_all_batches_stays_fast_at_no_further_pass() -> None:
    case, sizes = convnet(), []
    case.model.register_forward_hook(lambda _module, args, _output: sizes.append(len(args[0])))
    operator = Hessian(case.model, case.loss_fn, case.batches)
    assert operator.loss.losses.isfinite().all()  # what is looked at before the first product anyway
    assert operator.plan.graphs == 4
    sizes.clear()
    operator.product(_vector(operator))
    assert sizes == [8, 8, 8, 2]  # the graphs
    assert operator.form == Form(fast=True)


def test_losses_are_those_of_the_network_as_it_is() -> None:
    plain = FlatLoss(skipping(Own), cross_entropy, images())
    loss = FlatLoss(skipping(), cross_entropy, images())
    assert torch.equal(loss.losses, plain.losses)
    inputs, targets = next(iter(loss.batches))
    quick = loss.on_batch(inputs + 10, targets)  # where the fold is another network
    with loss.plainly():
        own = loss.on_batch(inputs + 10, targets)
        with loss.plainly():
            pass
        assert torch.equal(loss.on_batch(inputs + 10, targets), own)
    assert not torch.isclose(quick, own)
    assert torch.equal(loss.on_batch(inputs + 10, targets), quick)  # it is put back


def test_small_losses_of_large_outputs_differ_by_rounding() -> None:
    """A network that fits its samples has losses of some roundings of its logits, one more or less."""
    outputs, loss = 20.0, torch.tensor(2e-6)
    assert close(loss, loss + 5e-7, torch.float32, beside=outputs)
    assert not close(loss, loss + 5e-7, torch.float32)
    assert not close(loss, loss + 5e-4, torch.float32, beside=outputs)
    assert not close(loss.double(), loss.double() + 5e-7, torch.float64, beside=outputs)
    assert largest({"a": torch.tensor([1.0, -3.0, -torch.inf]), "b": (torch.tensor([9]),)}) == 3
    assert largest(()) == 0


def test_surfaces_are_those_of_the_network_as_it_is() -> None:
    found: list[Any] = [
        surface(m, cross_entropy, images(), directions=random_directions(m), grid=5)
        for m in (skipping(), skipping(Own))
    ]
    torch.testing.assert_close(found[0].loss, found[1].loss, rtol=1e-10, atol=0)
    assert found[0].form == Form(fast=False, reason="its outputs would differ")
