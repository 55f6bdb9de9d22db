"""The repeated blocks of a network, whose intermediate results may be computed again instead of kept.

A block is an item of a ``ModuleList`` or ``Sequential`` that has modules of its own, such as the layers of a
transformer or the residual blocks of a convolutional network. Within :class:`Blocks` a graph keeps what goes
into each block, and not what happens in it.

``torch.utils.checkpoint`` keeps little for one derivative (Chen et al. 2016, "Training deep nets with
sublinear memory cost"); the graph of a gradient that is to be differentiated again then holds what was
recomputed. Here (:func:`recomputed`) the gradient is a function of its own, which too keeps its inputs alone:
a product with the second derivative costs the function, its gradient and the derivative of that, every time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

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


class Blocks:
    """The outermost blocks of a network."""

    def __init__(self, model: nn.Module) -> None:
        self._blocks = list(_outermost(model))

    @property
    def found(self) -> bool:
        return bool(self._blocks)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before = [(block, block.__dict__.get("forward")) for block in self._blocks]
        for block in self._blocks:
            block.forward = _again(block, block.forward)
        try:
            yield
        finally:
            for block, own in before:
                del block.forward
                if own is not None:
                    block.forward = own


def _outermost(model: nn.Module) -> Iterator[nn.Module]:
    for module in model.children():
        items = module.children() if isinstance(module, nn.ModuleList | nn.Sequential) else ()
        chosen = [item for item in items if any(True for _ in item.children())]
        chosen = [item for item in chosen if any(True for _ in item.parameters())]
        yield from chosen or _outermost(module)


def _again(block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    owned = [
        (module, name, parameter)
        for module in block.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and parameter.requires_grad
    ]
    parameters = list(dict.fromkeys(parameter for _, _, parameter in owned))

    def called(*args: Any, **kwargs: Any) -> Any:
        leaves, form = tree_flatten((args, kwargs))
        moving = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not (torch.is_grad_enabled() and (moving or parameters)):
            return forward(*args, **kwargs)
        fixed = [leaf for i, leaf in enumerate(leaves) if i not in moving]
        form_of: list[Any] = []  # of the output: what is no floating tensor in it, and how it is nested

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            given, others = dict(zip(moving, tensors, strict=False)), iter(fixed)
            values = [given[i] if i in given else next(others) for i in range(len(leaves))]
            own, named = tree_unflatten(values, form)
            with _in_place_of(owned, dict(zip(parameters, tensors[len(moving) :], strict=True))):
                found, nested = tree_flatten(forward(*own, **named))
            form_of[:] = [[None if _differentiable(leaf) else leaf for leaf in found], nested]
            return tuple(leaf for leaf in found if _differentiable(leaf))

        outputs = iter(recomputed(function, *(leaves[i] for i in moving), *parameters))
        others, nested = form_of
        return tree_unflatten([next(outputs) if leaf is None else leaf for leaf in others], nested)

    return called


def _differentiable(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.is_floating_point()


@contextmanager
def _in_place_of(
    owned: Sequence[tuple[nn.Module, str, nn.Parameter]], swapped: dict[nn.Parameter, Tensor]
) -> Iterator[None]:
    for module, name, parameter in owned:
        module._parameters[name] = swapped[parameter]  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, name, parameter in owned:
            module._parameters[name] = parameter
