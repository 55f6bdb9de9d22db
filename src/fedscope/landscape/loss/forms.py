"""The faster forms of a network, each tried against the plain one: none may refuse the network or change it.

A form is taken where, on a few samples, it gives the network's outputs and loss to rounding and the same
Hessian–vector product. Products may differ by more than rounding, because rounding moves a few activations
across a ReLU's kink; a derivative that is wrong or absent differs by its own size. A network that does other
things with other samples is told by the losses of all batches, which the first product compares
(:class:`fedscope.landscape.operators.empirical_risk.LossOperator`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.factories import reason
from fedscope.landscape.loss.checks import close, slack
from fedscope.landscape.loss.kernels.bn_folding import Fold
from fedscope.landscape.loss.kernels.conv_double_backward import LAYOUTS


@dataclass(frozen=True)
class Form:
    """How a network is evaluated: in a faster form, or as it is."""

    fast: bool
    reason: str | None = None  # why not, where there is something to make faster

    @property
    def entry(self) -> dict[str, str]:
        why = {"form_reason": self.reason} if self.reason else {}
        return {"form": "fast" if self.fast else "plain", **why}


PLAIN = Form(fast=False)


@dataclass(frozen=True)
class FormOutput:
    """What a network gives on a few samples."""

    numbers: Tensor  # outputs and loss, as one vector
    product: Tensor | None  # (n,): of the Hessian with some vector; None: PyTorch has none


def fastest(fold: Fold, evaluate: Callable[[], Tensor], attempt: Callable[[], FormOutput]) -> Form:
    """Leave a network in the fastest form that is the same network, and say which that is."""
    if fold.empty:
        return PLAIN
    plain, why = attempt(), "an operation of the network has no second derivative"
    for layout in LAYOUTS if plain.product is not None else ():
        try:
            fold.install(layout, evaluate)
            why = _difference(plain, attempt())
        except Exception as error:  # whatever a network raises whose layers are not quite its own
            why = reason(error).splitlines()[0]
        if not why:
            return Form(fast=True)
        fold.remove()
    return Form(fast=False, reason=why)


def _difference(plain: FormOutput, other: FormOutput) -> str:
    if not close(plain.numbers, other.numbers, plain.numbers.dtype):
        return "its outputs would differ"
    if other.product is None or plain.product is None:
        return "its products have no second derivative"
    finite = plain.product.isfinite()
    if not torch.equal(finite, other.product.isfinite()):
        return "its products would differ"
    ours, theirs = other.product[finite].double(), plain.product[finite].double()
    most = slack(plain.product.dtype) ** 0.5 * float(theirs.norm())
    return "its products would differ" if float((ours - theirs).norm()) > most else ""
