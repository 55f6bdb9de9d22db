"""What is not finite, weights, samples, outputs or the loss, refused by name before anything is measured.

The curvature of such a loss has no value, and neither has a landscape around it. A point elsewhere in a
landscape may have an infinite loss; that is counted (:mod:`fedscope.landscape.surfaces.surface`).
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.trees import Tree, count, flat, leaves, some
from fedscope.landscape.operators.base import Operator

_MOST = 3  # tensors that are named


def check_finite(what: str, model: nn.Module, loss: FlatLoss) -> None:
    """Refuse a network whose weights, or whose loss on a batch, are not finite.

    Inputs, targets and BatchNorm's statistics are refused where the loss on them is not finite: a mask of −∞
    may be meant, and ``bn`` may replace statistics.
    """
    if broken := _broken(model.named_parameters()):
        raise UserError(
            f"{what} has weights that are not finite: {broken}; leave it out, or take an earlier round"
        )
    for batch in (~loss.losses.isfinite()).nonzero().flatten().tolist()[:1]:
        raise UserError(_reason(what, model, loss, batch))


def check_products(what: str, operator: Operator, found: Tensor) -> None:
    """Refuse results of products that are not finite though the loss is."""
    if found.isfinite().all():
        return
    forms = operator.product(
        torch.ones(operator.shape[0], dtype=operator.dtype, device=operator.device)
    ).forms
    broken = [] if forms is None else (~forms.isfinite()).nonzero().flatten().tolist()
    where = f" in batch {broken[0] + 1} of {len(operator.weights or ())}" if broken else ""
    raise UserError(
        f"the loss of {what} is finite, its second derivative is not{where}: a square root, a norm or a "
        "power at 0 (add a small constant), or an overflow (try --dtype float64)"
    )


def _reason(what: str, model: nn.Module, loss: FlatLoss, batch: int) -> str:
    inputs, targets = list(loss.batches)[batch]
    before = sum(loss.batches.sizes[:batch])
    for name, tree in (("inputs", inputs), ("targets", targets)):
        if found := _samples(tree, before):
            return (
                f"the {name} are not finite: {found}, in batch {batch + 1} of {len(loss.batches)}; repair "
                "these samples, or leave them out"
            )
    if broken := _broken(model.named_buffers()):
        return (
            f"{what} has statistics that are not finite: {broken}; take an earlier round, or estimate them "
            "anew with --bn recalibrate"
        )
    where = f"in batch {batch + 1} of {len(loss.batches)}"
    with torch.no_grad(), loss.exact():
        outputs = flat(loss.outputs(inputs))
    if entries := _entries(outputs):
        return (
            f"{entries} of {outputs.numel()} outputs of {what} {where} are not finite, though its weights "
            "and the inputs are; take an earlier round, or try --dtype float64"
        )
    return (
        f"the loss of {what} is {float(loss.losses[batch])} {where}, though weights, samples and outputs are "
        "finite; check the loss, or try --dtype float64"
    )


def _broken(named: Iterable[tuple[str, Tensor]]) -> str:
    found = []
    for name, tensor in named:
        if entries := _entries(tensor):
            found.append(f"{name} ({entries} of {tensor.numel()} entries)")
    more = len(found) - _MOST
    return ", ".join(found[:_MOST]) + (f" and {more} more tensors" if more > 0 else "")


def _samples(tree: Tree, before: int) -> str:
    found = [i for i in range(count(tree)) if any(map(_entries, leaves(some(tree, slice(i, i + 1)))))]
    if not found:
        return ""
    first = sum(map(_entries, leaves(some(tree, slice(found[0], found[0] + 1)))))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"sample {before + found[0]} ({first} entries){more}"


def _entries(tensor: Tensor) -> int:
    return int((~tensor.isfinite()).sum())
