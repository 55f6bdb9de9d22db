"""Whether products are what they are called, told by central differences before the first one is made.

Automatic differentiation takes each operation at its word. An ``autograd.Function`` may keep an intermediate
of its forward, which is then a constant to the second derivative; a straight-through estimator, a reversed
gradient, ``detach()`` or a hook give a gradient that is not the loss's. Both are symmetric as a rule, so that
no algorithm notices. Along a random vector v, on a few samples and in float64 where the network runs
in it, two comparisons tell:

- ∇L·v with (L(w + εv) − L(w − εv))/2ε: whether the gradient is the loss's;
- A v with its definition, where the derivative along v is a central difference: of the gradient for the
  Hessian, of outputs or losses for a matrix JᵀMJ.

What differs is looked at again with larger ε, at which kinks are held where they are at the weights
(:mod:`fedscope.landscape.operators.products.kinks`).
"""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fedscope.errors import DerivativeWarning, UserError
from fedscope.landscape.loss.checks import check_symmetric, close, explained
from fedscope.landscape.loss.flat_loss import FlatLoss
from fedscope.landscape.loss.float64 import precisely
from fedscope.landscape.loss.kernels.derivatives import joined, pulled
from fedscope.landscape.loss.streamed import Batch
from fedscope.landscape.loss.trees import Tree, flat, some, split
from fedscope.landscape.operators.basis.row_space import PIECE
from fedscope.landscape.operators.products.graph_cache import Graph
from fedscope.landscape.operators.products.kinks import Kinks
from fedscope.landscape.operators.products.wrong_derivatives import place_of, same, settles_elsewhere
from fedscope.streams import random_signs

SAMPLES = 4
Steps = tuple[tuple[float, float], ...]
_FIRST = 1e-7  # ε, in parts of a typical weight: it crosses a kink of large networks only
_STEPS: Steps = ((1e-5, 3e-6), (1e-3, 5e-4))  # the last for networks that round to float32 inside
_ROUNDINGS = 64  # of the loss, or of the gradient
_DIRECTIONS = 8  # along which the loss is looked at once more


@dataclass(frozen=True)
class Definition:
    """What an operator's products with a few samples are made of."""

    graph: Callable[[Batch], tuple[Graph, Tensor]]
    gradient: Callable[[Graph, Batch], Tensor]  # of the loss
    values: Callable[
        [Batch], Tensor
    ]  # the loss, then what is differenced along v, at the weights as they are
    product: Callable[[Batch, Tensor], Tensor]  # the derivative of the latter along v ↦ A v
    times: Callable[[Graph, Tensor], Tensor] | None = None  # (graph, v) ↦ A v; None: by differences
    loose: float = 0  # relative: an error that ``product`` itself may have


def of_gradients(loss: FlatLoss) -> Definition:
    """Return the definition of the Hessian, whose products are taken by differences of gradients."""

    def values(batch: Batch) -> Tensor:
        value = loss.on_batch(*batch)
        loss.check_used(value)
        return joined((value, *pulled((value,), loss.parameters, (torch.ones_like(value),))))

    def graph(batch: Batch) -> tuple[Graph, Tensor]:
        found = values(batch)
        return (found[1:],), found[0].detach()

    return Definition(graph, lambda graph, _: joined(graph), values, lambda _, change: change)


def of_outputs(
    loss: FlatLoss,
    graph: Callable[[Batch], tuple[Graph, Tensor]],
    times: Callable[[Graph, Tensor], Tensor],
    product: Callable[[Batch, Tensor], Tensor],
) -> Definition:
    """Return the definition of JᵀMJ, J the outputs' Jacobian, for ``product``: (batch, Jv) ↦ JᵀMJv."""

    @torch.no_grad()
    def values(batch: Batch) -> Tensor:
        outputs = loss.outputs(batch[0])
        return joined((loss.of(outputs, batch[1]), outputs))

    return Definition(graph, lambda _, batch: loss.gradient(*batch), values, product, times)


def check_apart(loss: FlatLoss, inputs: Tree) -> None:
    with torch.no_grad(), loss.exact():
        together = flat(loss.outputs(inputs))
        found = (_in_parts(loss, inputs, size) for size in (1, 2))
        apart = next((outputs for outputs in found if outputs is not None), together)
    if not close(together, apart, together.dtype):
        raise UserError(
            "the network's output for a sample depends on the others of its batch (a mean over the batch, "
            "say), so that no sample has a gradient of its own: take the Hessian or the Gauss–Newton matrix"
        )


def _in_parts(loss: FlatLoss, inputs: Tree, size: int) -> Tensor | None:
    try:
        return torch.cat([flat(loss.outputs(part)) for part in split(inputs, size)])
    except Exception:  # whatever a network raises that takes no so few samples
        return None


def some_of(loss: FlatLoss, most: int = SAMPLES) -> Batch:
    """Return some samples of all batches, four or at most ``most``, for what is looked at once."""
    if loss.coupled:
        return loss.batches[0]
    inputs, targets = loss.batches.spread(SAMPLES)
    rows = slice(max(1, min(SAMPLES, most)))
    return some(inputs, rows), some(targets, rows)


def compared(loss: FlatLoss, parts: Definition, most: int, otherwise: str, *, apart: bool) -> str:
    """Return in a sentence what is measured where the gradient is not the loss's; nothing where it is.

    ``apart``: whether the operator is made of each sample's own gradient.
    """
    batch = some_of(loss, most)
    if apart and not loss.coupled:
        check_apart(loss, batch[0])
    with explained(loss.model, lambda: loss.of(loss.outputs(batch[0]), batch[1]), otherwise):
        said = precisely(loss, batch, lambda few: _Comparison(loss, parts, few).told(otherwise))
    if said:
        warnings.warn(said, DerivativeWarning, stacklevel=2)
    return said


def jump_of(loss: FlatLoss) -> str:
    """Return what a loss that jumps at its weights means, in a sentence; nothing where it does not jump."""
    no_product = of_gradients(loss)
    return precisely(loss, some_of(loss), lambda few: _Comparison(loss, no_product, few).jump())


def along(loss: FlatLoss) -> Tensor:
    """Return the (n,) vector that products are tried with; signs may have a product of exactly 0."""
    stream = torch.Generator().manual_seed(0)
    return loss.moving(torch.randn(len(loss.center), generator=stream, dtype=loss.dtype).to(loss.device))


def product_of(loss: FlatLoss, parts: Definition, batch: Batch, v: Tensor) -> Tensor:
    return _Comparison(loss, parts, batch).product(v)


class _Comparison:
    """A few samples' derivatives and the differences beside them, in the precision of ``loss``."""

    def __init__(self, loss: FlatLoss, parts: Definition, batch: Batch) -> None:
        self._loss, self._parts, self._batch = loss, parts, batch
        single = torch.finfo(loss.dtype).eps ** (1 / 3)
        double = loss.dtype == torch.float64
        self._first = _FIRST if double else single
        self._steps: Steps = _STEPS if double else ((single, single / 2),)
        self._unit = _typical(loss.center)

    def product(self, v: Tensor) -> Tensor:
        if self._parts.times:
            return self._parts.times(self._parts.graph(self._batch)[0], v)
        change = self._difference(lambda: self._parts.values(self._batch), v, held=True)(self._steps[0][0])
        return self._parts.product(self._batch, change[1:])

    def told(self, otherwise: str) -> str:
        graph, value = self._parts.graph(self._batch)
        v, times = along(self._loss), self._parts.times
        gradient = self._parts.gradient(graph, self._batch).detach()
        product = times(graph, v).detach() if times else None  # before the weights move, which ends the graph
        change = self._difference(lambda: self._parts.values(self._batch), v)(self._first)
        if said := self._of_gradient(gradient, v, change[0], value):
            if times:
                graph = self._parts.graph(self._batch)[0]
                check_symmetric(lambda u: times(graph, u), self._loss.center, said)
        elif product is not None:
            self._check_product(product, v, change[1:], float(gradient.norm()), otherwise)
        return said

    def _of_gradient(self, gradient: Tensor, v: Tensor, change: Tensor, value: Tensor) -> str:
        slope, size = gradient @ v, 1 + float(value.abs())
        room = _ROUNDINGS * torch.finfo(value.dtype).eps * size / (self._first * self._unit)
        if same(slope[None], change[None]) or not float((slope - change).abs()) > room:
            return ""
        directions = self._directions()
        changes = self._changes(directions)
        if settles_elsewhere(torch.stack([gradient @ d for d in directions]), changes, self._steps):
            where = place_of(self._loss, self._batch, twice=False) or ", by detach(), no_grad or a hook, say"
            return (
                f"the gradient is not that of the loss{where} ({float(slope):.3g} along a direction in which "
                f"the loss changes by {float(change):.3g}); the matrix is what automatic differentiation "
                "makes of that gradient, not the loss's own"
            )
        return self.jump()

    def jump(self) -> str:
        changes = self._changes(self._directions())
        wide, near = (step * changes(step) for step in self._steps[0])
        if not float((wide - near).norm()) < float(near.norm()) / 2:  # of a slope it is 2.3 times as much
            return ""
        return (
            "the loss jumps at these weights (a step in the network, or a parametrization such as "
            "orthogonal(…, orthogonal_map='householder')): its derivatives hold at the weights alone, "
            "surfaces and averages of weights show another network"
        )

    def _directions(self) -> list[Tensor]:
        size, stream = (_DIRECTIONS, len(self._loss.center)), torch.Generator().manual_seed(1)
        few = random_signs(size, stream, self._loss.dtype).to(self._loss.device)
        return [self._loss.moving(d) for d in few]

    def _changes(self, directions: Sequence[Tensor]) -> Callable[[float], Tensor]:
        differences = [self._difference(self._value, d, held=True) for d in directions]
        return lambda step: torch.stack([difference(step) for difference in differences])

    def _check_product(
        self, product: Tensor, v: Tensor, change: Tensor, gradient: float, otherwise: str
    ) -> None:
        if same(product, self._parts.product(self._batch, change).detach()):
            return
        difference = self._difference(lambda: self._parts.values(self._batch), v, held=True)

        def defined(step: float) -> Tensor:
            return self._parts.product(self._batch, difference(step)[1:]).detach()

        eps, shortest = torch.finfo(product.dtype).eps, self._steps[0][1] * self._unit
        room = _ROUNDINGS * eps * gradient / shortest + self._parts.loose * float(product.norm())
        if off := settles_elsewhere(product, defined, self._steps, room):
            where = place_of(self._loss, self._batch, twice=True)
            raise UserError(
                f"a second derivative is wrong{where}: products are {100 * off:.3g} % off what differences "
                "give. An autograd.Function must save what its backward needs as inputs or outputs and "
                f"compute it by differentiable operations; write the operation out{otherwise}"
            )

    def _difference(
        self, values: Callable[[], Tensor], v: Tensor, *, held: bool = False
    ) -> Callable[[float], Tensor]:
        """Return ε ↦ the central difference of ``values`` along v, with kinks held where they are."""
        kinks = Kinks()
        if held:
            with kinks:
                values()

        def at(length: float) -> Tensor:
            self._loss.load(torch.add(self._loss.center, v, alpha=length))
            with kinks.rewind() if kinks.any else nullcontext():
                return values().detach()

        def difference(step: float) -> Tensor:
            length = step * self._unit
            found = (at(length) - at(-length)) / (2 * length)
            self._loss.load(self._loss.center)
            return found

        return difference

    @torch.no_grad()
    def _value(self) -> Tensor:
        return self._loss.on_batch(*self._batch)


def _typical(weights: Tensor) -> float:
    """Return the geometric mean of the sizes that are not 0, none taken below 1e-4 of their r.m.s."""
    count = int(weights.count_nonzero())
    if not count:
        return 1.0
    least, pieces = 1e-4 * float(weights.norm()) / math.sqrt(count), weights.split(PIECE)
    logs = (piece[piece != 0].abs().clamp(min=least).log().sum() for piece in pieces)
    return math.exp(sum(map(float, logs)) / count)
