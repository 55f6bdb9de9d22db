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

    @torch.no_grad()
    def times(
        self, along: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return JᵀH_f J (dh, dW, db) as three tensors; None: the layer's are not differentiated in."""
        assert self.weights is not None
        W, b = self.layer.weight, self.layer.bias
        back, to_weight, to_bias = torch.empty_like(along), torch.zeros_like(W), W.new_zeros(len(W))
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
            to_weight += curved.T @ h
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
