"""The repeated blocks of a network, whose intermediate results may be computed again instead of kept.

A block is an item of a ``ModuleList`` or ``Sequential`` that has modules of its own, such as the layers of a
transformer or the residual blocks of a convolutional network. Within :class:`Blocks` a graph keeps what goes
into each block, and not what happens in it (:mod:`fedscope.landscape.loss.recomputed.functions`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from fedscope.landscape.loss.recomputed.functions import recomputed


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
