"""An output layer with its cross-entropy, by chunks of positions, in products of Gauss–Newton matrices.

With logits z_i = W h_i + b of positions i and the loss L = Σ_i c_i ℓ(z_i), the Hessian of L in the logits is
c_i (diag p_i − p_i p_iᵀ) at each position, p_i = softmax(z_i). A product with JᵀH_f J, J the Jacobian of the
logits in (h, W, b), needs the logits and their tangents of some positions at a time and no others. At labels
y_i that are drawn, r_i = √c_i (p_i − e_y) takes the place of H_f's root.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedscope.landscape.loss.kernels.derivatives import pulled

Parts = tuple[Tensor, Tensor | None, Tensor | None]
Some = tuple[slice, Tensor]
"""Positions, and a number for each of their logits, (P', C)."""


@dataclass
class Head:
    """One use of a layer's logits in a cross-entropy.

    Symbols: P positions, d inputs, C classes.
    """

    inputs: Tensor  # h, (P, d), with the graph of the network below
    layer: nn.Linear
    labelled: Tensor  # (P,) bool; the others are ignored
    chunk: int  # positions at a time
    losses: Tensor | None = None  # ℓ, (P,): a leaf that the loss is computed of
    weights: Tensor | None = None  # c, (P,)

    @property
    def used(self) -> bool:
        return any(t is not None and t.requires_grad for t in (self.inputs, *self.tensors))

    @property
    def tensors(self) -> tuple[Tensor, Tensor | None]:
        return self.layer.weight, self.layer.bias

    def times(self, along: Tensor, weight: Tensor | None, bias: Tensor | None) -> Parts:
        """Return JᵀH_f J (dh, dW, db): (P, d), (C, d) and (C,), without the parts whose dW or db is None."""
        return self.back(self._curved(along, weight, bias), weight, bias)

    @torch.no_grad()
    def _curved(self, along: Tensor, weight: Tensor | None, bias: Tensor | None) -> Iterator[Some]:
        assert self.weights is not None
        for own, p, pushed in self.pushed(along, weight, bias):
            curved = p * (pushed - (p * pushed).sum(1, keepdim=True))
            curved *= (self.weights[own] * self.labelled[own])[:, None]
            yield own, curved

    @torch.no_grad()
    def chances(self) -> Iterator[Some]:
        for first in range(0, len(self.inputs), self.chunk):
            own = slice(first, first + self.chunk)
            yield own, F.linear(self.inputs[own], *self.tensors).softmax(1)

    @torch.no_grad()
    def pushed(
        self, along: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield p, and the logits' derivative in the direction (dh, dW, db)."""
        for own, p in self.chances():
            found = F.linear(along[own], self.layer.weight, bias)
            if weight is not None:
                found += self.inputs[own] @ weight.T
            yield own, p, found

    @torch.no_grad()
    def back(self, slopes: Iterable[Some], weight: Tensor | None, bias: Tensor | None) -> Parts:
        """Return Jᵀ of numbers for all logits, in its three parts; None in place of those of None."""
        below = torch.empty_like(self.inputs)
        to_weight, to_bias = (None if part is None else torch.zeros_like(part) for part in (weight, bias))
        for own, slope in slopes:
            below[own] = slope @ self.layer.weight
            if to_weight is not None:
                to_weight += slope.T @ self.inputs[own]
            if to_bias is not None:
                to_bias += slope.sum(0)
        return below, to_weight, to_bias


@dataclass(kw_only=True)
class DrawnHead(Head):
    """The same with labels drawn at every position: of the matrix Jᵀr rᵀJ, r at these labels.

    Symbols: n samples of P/n positions, S labels.
    """

    drawn: Tensor  # (P, S)
    samples: int

    @torch.no_grad()
    def times(self, along: Tensor, weight: Tensor | None, bias: Tensor | None) -> Parts:
        """Return the mean over s of Σ_i J_iᵀ r_is r_isᵀ J_i (dh, dW, db), r_is of all of i's positions."""
        assert self.weights is not None
        scale = (self.weights.sqrt() * self.labelled)[:, None]
        seen = torch.empty_like(self.drawn, dtype=along.dtype)
        for own, p, pushed in self.pushed(along, weight, bias):
            seen[own] = (p * pushed).sum(1, keepdim=True) - pushed.gather(1, self.drawn[own])
        each = (scale * seen).view(self.samples, -1, seen.shape[1]).sum(1, keepdim=True)
        shares = scale * (each / seen.shape[1]).expand(-1, len(seen) // self.samples, -1).reshape(seen.shape)
        return self.back(self._slopes(shares), weight, bias)

    @torch.no_grad()
    def _slopes(self, shares: Tensor) -> Iterator[Some]:
        for own, p in self.chances():
            p *= shares[own].sum(1, keepdim=True)
            yield own, p.scatter_add_(1, self.drawn[own], -shares[own])


class HeadGraph(tuple[Tensor, ...]):
    """Jᵀu of what goes into heads, that itself, and its u: where products with their matrices begin."""

    heads: Sequence[Head]

    @classmethod
    def of(cls, heads: Sequence[Head], parameters: Sequence[Tensor]) -> "HeadGraph":
        below = [head.inputs for head in heads]
        duals = [torch.zeros_like(h, requires_grad=True) for h in below]
        found = cls((*pulled(below, parameters, duals, again=True), *below, *duals))
        found.heads = heads
        return found

    def times(self, parameters: Sequence[Tensor], v: Sequence[Tensor]) -> tuple[Tensor, ...]:
        along, count = dict(zip(map(id, parameters), v, strict=True)), len(self.heads)
        below, duals = self[-2 * count : -count], self[-count:]
        back, direct = [], []
        pushed = pulled(self[: len(parameters)], duals, v)
        for head, own in zip(self.heads, pushed, strict=True):
            layers = list(map(id, head.tensors))
            below_it, *its = head.times(own, *map(along.get, layers))
            back.append(below_it)
            direct += [(layer, part) for layer, part in zip(layers, its, strict=True) if part is not None]
        found = dict(zip(along, pulled(below, parameters, back), strict=True))
        for layer, part in direct:
            found[layer] = found[layer] + part
        return tuple(found.values())


def weighted(loss: Tensor, heads: Sequence[Head]) -> bool:
    """Set the weights of heads whose losses ``loss`` is the weighted sum of; say whether it is."""
    if not heads or not loss.requires_grad:
        return False
    losses = [head.losses for head in heads if head.losses is not None]
    found = torch.autograd.grad(loss, losses, create_graph=True, materialize_grads=True)
    for head, weights in zip(heads, found, strict=True):
        head.weights = weights.detach()
    return not any(weights.requires_grad for weights in found)
