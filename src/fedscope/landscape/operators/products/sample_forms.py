"""Every sample's own vᵀA_i v, where derivatives in forward mode are there and right."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from fedscope.landscape.loss.checks import slack
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.trees import Tree, count
from fedscope.landscape.operators.batch_mean import add_up, share
from fedscope.landscape.operators.products.definition import Definition, along, product_of, some_of

Forms = Callable[[Tree, Tree, Tensor], Tensor]


def every_form(
    loss: FlatLoss,
    forms: Forms,
    v: Tensor,
    together: int,
    group: ProcessGroup | None,
) -> Tensor | None:
    """Return vᵀA_i v (N,) of every sample, float64; None where an operation has no derivative for them."""
    found = torch.zeros(loss.batches.samples, dtype=torch.float64, device=v.device)
    start, mine = 0, share(len(loss.batches), group)
    try:
        with loss.forward_mode():
            for turn, (inputs, targets) in enumerate(loss.batches.joined(together)):
                end = start + count(inputs)
                if turn in mine:
                    found[start:end] = forms(inputs, targets, v)
                start = end
    except Exception:  # whatever a network or a loss raises that is not made for forward mode
        return None
    add_up(group, found)
    return found


def forms_hold(loss: FlatLoss, parts: Definition, forms: Forms) -> bool:
    """Say whether the samples' forms vᵀA_i v, by derivatives in forward mode, have that of A as their mean.

    PyTorch (2.13) has a wrong second derivative in forward mode of several operations, and none of others.
    """

    few = some_of(loss)
    v = along(loss)
    try:
        with torch.enable_grad(), loss.exact():
            product = product_of(loss, parts, few, v).detach().double()
        with loss.forward_mode():
            found = forms(*few, v).double()
    except Exception:  # whatever a network or a loss raises that is not made for forward mode
        return False
    room = slack(loss.dtype) ** 0.5 * float(found.abs().mean())
    return bool(abs(float(found.mean()) - float(v.double() @ product)) <= room)
