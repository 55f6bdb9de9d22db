"""A function that keeps its inputs alone for two derivatives, and computes the rest again.

``torch.utils.checkpoint`` keeps little for one derivative (Chen et al. 2016, "Training deep nets with
sublinear memory cost"); the graph of a gradient that is to be differentiated again then holds what was
recomputed. Here the gradient is a function of its own, which too keeps its inputs alone: a product with the
second derivative costs the function, its gradient and the derivative of that, every time.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Many = Callable[..., tuple[Tensor, ...]]


def recomputed(function: Many, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return ``function(*inputs)`` of a deterministic function, to be differentiated twice in the inputs."""
    found: tuple[Tensor, ...] = _Value.apply(function, *inputs)  # type: ignore[no-untyped-call]
    return found


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Many, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        found = _Gradient.apply(  # type: ignore[no-untyped-call]
            ctx.function, len(slopes), *slopes, *ctx.saved_tensors
        )
        return None, *found


class _Gradient(torch.autograd.Function):
    """(cotangents, inputs) ↦ Jᵀu."""

    @staticmethod
    def forward(ctx: Any, function: Many, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.function, ctx.count = function, count
        ctx.save_for_backward(*tensors)
        with torch.enable_grad(), _unseen():
            inputs = _leaves(tensors[count:])
            outputs = function(*inputs)
            return torch.autograd.grad(outputs, inputs, tensors[:count], materialize_grads=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *along: Tensor) -> tuple[Tensor | None, ...]:
        with torch.enable_grad(), _unseen():
            tensors = _leaves(ctx.saved_tensors)
            slopes, inputs = tensors[: ctx.count], tensors[ctx.count :]
            gradients = torch.autograd.grad(
                ctx.function(*inputs), inputs, slopes, create_graph=True, materialize_grads=True
            )
            used = [pair for pair in zip(gradients, along, strict=True) if pair[0].requires_grad]
            if not used:
                return None, None, *map(torch.zeros_like, tensors)
            found = torch.autograd.grad(
                [gradient for gradient, _ in used], tensors, [v for _, v in used], materialize_grads=True
            )
        return None, None, *found


def _unseen() -> AbstractContextManager[None]:
    """Keep what is made here for a moment from hooks that look at what graphs save."""
    return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda tensor: tensor)


def _leaves(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().requires_grad_(True) for tensor in tensors)
