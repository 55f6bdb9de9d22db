"""Derivatives in a network's parameters, and weight normalisation in operations that have two of them."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
import torch._refs
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def pulled(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Tensor], *, again: bool = False
) -> tuple[Tensor, ...]:
    """Return Jᵀu of ``outputs`` as a function of ``inputs``, zero where they do not depend on them.

    ``again``: itself differentiable. The graph stays.
    """
    used = [(output, u) for output, u in zip(outputs, cotangents, strict=True) if output.requires_grad]
    if not used:
        return tuple(map(torch.zeros_like, inputs))
    return torch.autograd.grad(
        [output for output, _ in used], inputs, [u for _, u in used],
        retain_graph=True, create_graph=again, materialize_grads=True,
    )  # fmt: skip


def joined(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([piece.reshape(-1) for piece in pieces])


@contextmanager
def without_compiler() -> Iterator[None]:
    """Within it PyTorch's rules of forward mode do not import the compiler, ``torch._dynamo``.

    They would (2.13), only to be left alone by it, in a second. The import also leaves a cycle with the
    frames that call for it, and all that these hold: an operator, its graphs, a process group.
    """
    there = "torch._dynamo" in sys.modules
    written = [] if there else [*_left_alone()]
    for function in written:
        vars(function)["__dynamo_disable"] = function
    try:
        yield
    finally:
        for function in written:
            vars(function).pop("__dynamo_disable", None)
        if not there and "torch._dynamo" in sys.modules:
            gc.collect()


def _left_alone() -> Iterator[Callable[..., Any]]:
    """Yield the operations that PyTorch has in Python and lets the compiler skip."""
    for operation in vars(torch._refs).values():
        skipped = getattr(operation, "__wrapped__", None)
        if isinstance(skipped, FunctionType) and skipped.__code__.co_filename == torch._compile.__file__:
            inside = (cell.cell_contents for cell in skipped.__closure__ or ())
            yield from filter(callable, inside)


def padding(model: nn.Module, parameters: Sequence[Tensor]) -> Tensor | None:
    """Return where in the flat vector of ``parameters`` the padding rows of embeddings lie, (n,) bool.

    Their gradient is 0 whatever the loss does, so that they are constants of training and of its curvature.
    None where there are none, or where another layer shares the weights.
    """
    held = {id(p): torch.zeros_like(p, dtype=torch.bool) for p in parameters}
    users = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    found = False
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.padding_idx is not None:
            own = id(module.weight)
            if own in held and users[own] == 1:
                held[own][module.padding_idx], found = True, True
    return joined(list(held.values())) if found else None


def has_weight_norm(module: nn.Module) -> bool:
    return any("WeightNorm" in type(part).__name__ for part in (module, *module._forward_pre_hooks.values()))


class DifferentiableWeightNorm(TorchFunctionMode):
    """Within it w = g·v/‖v‖ is made of plain operations.

    The second derivative of PyTorch's own kernel (2.13) treats the norms as constants and is not symmetric.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch._weight_norm:
            v, g, dim = args
            return v * (g / torch.norm_except_dim(v, 2, dim))
        return func(*args, **(kwargs or {}))


class WrittenOut(TorchFunctionMode):
    """Within it LayerNorm and InstanceNorm by the samples' own statistics are made of plain operations.

    PyTorch's own (2.13) have a wrong second derivative in forward mode (pytorch/pytorch#198017).
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.layer_norm:
            return _layer_norm(*args, **kwargs)
        if func is functional.instance_norm and _by_instance(*args, **kwargs):
            return _instance_norm(*args, **kwargs)
        return func(*args, **kwargs)


def _layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    return _normed(input, range(-len(normalized_shape), 0), weight, bias, eps)


def _by_instance(*args: Any, use_input_stats: bool = True, **kwargs: Any) -> bool:
    return bool(args[5] if len(args) > 5 else use_input_stats)


def _instance_norm(
    input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    shape = (-1, *[1] * (input.ndim - 2))
    scale, shift = (p if p is None else p.view(shape) for p in (weight, bias))
    return _normed(input, range(2, input.ndim), scale, shift, eps)


def _normed(x: Tensor, dims: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    off = x - x.mean(tuple(dims), keepdim=True)
    found = off * torch.rsqrt(off.square().mean(tuple(dims), keepdim=True) + eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias
