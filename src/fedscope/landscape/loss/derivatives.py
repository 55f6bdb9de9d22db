"""Derivatives in a network's parameters, and weight normalisation in operations that have two of them."""

import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
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
    """Return tensors as one flat vector."""
    return torch.cat([piece.reshape(-1) for piece in pieces])


def prepare_forward_mode() -> None:
    """Import what PyTorch's first derivative in forward mode imports, and drop what that keeps.

    The import (2.13) leaves a cycle with the frames that call for it, and all that these hold: an operator,
    its graphs, a process group that then outlives the others.
    """
    if "torch._dynamo" not in sys.modules:
        importlib.import_module("torch._dynamo")
        gc.collect()


def has_weight_norm(module: nn.Module) -> bool:
    """Say whether PyTorch normalises the module's weights, by a hook or as a parametrization."""
    return any("WeightNorm" in type(part).__name__ for part in (module, *module._forward_pre_hooks.values()))


class DifferentiableWeightNorm(TorchFunctionMode):
    """Within it w = g·v/‖v‖ is made of plain operations.

    The second derivative of PyTorch's own kernel (2.13) treats the norms as constants and is not symmetric.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Stand in for one function and call all others."""
        if func is torch._weight_norm:
            v, g, dim = args
            return v * (g / torch.norm_except_dim(v, 2, dim))
        return func(*args, **(kwargs or {}))
