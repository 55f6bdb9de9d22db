"""An output layer with its cross-entropy, by chunks of positions, in products of the Gauss–Newton matrix.

With logits z_i = W h_i + b of positions i and the loss L = Σ_i c_i ℓ(z_i), the Hessian of L in the logits is
c_i (diag p_i − p_i p_iᵀ) at each position, p_i = softmax(z_i). A product with JᵀH_f J, J the Jacobian of the
logits in (h, W, b), needs the logits and their tangents of some positions at a time and no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Head:
    """One use of a layer's logits in a cross-entropy.

    Symbols: P positions, d inputs, C classes.
    """

    inputs: Tensor  # h, (P, d), with the graph of the network below
    layer: nn.Linear
    losses: Tensor  # ℓ, (P,): a leaf that the loss is computed of
    labelled: Tensor  # (P,) bool; the others are ignored
    chunk: int  # positions at a time
    weights: Tensor | None = None  # c, (P,)

    @property
    def used(self) -> bool:
        """Whether the logits depend on what is differentiated in."""
        b = self.layer.bias
        return (
            self.inputs.requires_grad
            or self.layer.weight.requires_grad
            or (b is not None and b.requires_grad)
        )

    @torch.no_grad()
    def times(
        self, along: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return JᵀH_f J (dh, dW, db) in its three parts, (P, d), (C, d) and (C,).

        None in place of dW or db: the layer's is not differentiated in, and there is no such part.
        """
        assert self.weights is not None
        W, b = self.layer.weight, self.layer.bias
        back = torch.empty_like(along)
        to_weight, to_bias = (None if part is None else torch.zeros_like(part) for part in (weight, bias))
        for first in range(0, len(along), self.chunk):
            own = slice(first, first + self.chunk)
            h = self.inputs[own]
            p = F.linear(h, W, b).softmax(1)
            pushed = F.linear(along[own], W, bias)
            if weight is not None:
                pushed += h @ weight.T
            curved = p * (pushed - (p * pushed).sum(1, keepdim=True))
            curved *= (self.weights[own] * self.labelled[own])[:, None]
            back[own] = curved @ W
            if to_weight is not None:
                to_weight += curved.T @ h
            if to_bias is not None:
                to_bias += curved.sum(0)
        return back, to_weight, to_bias


def weighted(loss: Tensor, heads: Sequence[Head]) -> bool:
    """Set the weights of heads whose losses ``loss`` is the weighted sum of; say whether it is."""
    if not heads or not loss.requires_grad:
        return False
    found = torch.autograd.grad(
        loss, [head.losses for head in heads], create_graph=True, materialize_grads=True
    )
    for head, weights in zip(heads, found, strict=True):
        head.weights = weights.detach()
    return not any(weights.requires_grad for weights in found)
