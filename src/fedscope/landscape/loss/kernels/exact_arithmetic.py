"""Kernels that repeat bit for bit, keep float32's digits and have second derivatives."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedscope.landscape.loss.kernels.derivatives import DifferentiableWeightNorm, has_weight_norm


class ExactArithmetic:
    """The settings of PyTorch under which a network is evaluated; all are put back afterwards.

    Args:
        model: any network.
        device: where it lives.
        twice: take kernels that can be differentiated twice; otherwise the network's own, of less precision.
    """

    def __init__(self, model: nn.Module, device: torch.device, *, twice: bool = True) -> None:
        modules = list(model.modules())
        self._kind, self._twice = device.type, twice
        self._has_rnn = twice and any(isinstance(module, nn.RNNBase) for module in modules)
        self._has_weight_norm = any(map(has_weight_norm, modules))

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(attention_by_parts())
            if self._twice:
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(torch.autocast(self._kind, enabled=False))
            stack.enter_context(_whole_products())
            # cuDNN's recurrent kernels have no second derivative, and its TF32 keeps ten bits of mantissa.
            stack.enter_context(
                torch.backends.cudnn.flags(
                    enabled=not self._has_rnn, benchmark=False, deterministic=True, allow_tf32=False
                )
            )
            if self._has_weight_norm:
                stack.enter_context(DifferentiableWeightNorm())
            if "torch._dynamo" in sys.modules:  # a compiled part has no second derivative
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield


@contextmanager
def attention_by_parts() -> Iterator[None]:
    """Run attention by its operations: the fused path for inference rounds otherwise, and hides them."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _whole_products() -> Iterator[None]:
    """Multiply float32 matrices in float32: TF32 keeps ten bits of mantissa, bfloat16 seven."""
    word = _matmul_precision()
    parts = [(part, part.fp32_precision) for part in _by_operation()]
    if word not in ("highest", None):
        torch.set_float32_matmul_precision("highest")
    for part, _ in parts:
        if part.fp32_precision not in ("none", "ieee"):
            part.fp32_precision = "ieee"
    try:
        yield
    finally:
        if word not in ("highest", None):
            torch.set_float32_matmul_precision(word)
        for part, before in parts:
            if part.fp32_precision != before:
                part.fp32_precision = before


def _matmul_precision() -> str | None:
    """Return what is set for all matrix products; None where PyTorch's newer names say it by operation."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _by_operation() -> list[Any]:
    """Return where PyTorch (2.9 and later) keeps the precision of an operation on a device."""
    backends: Any = torch.backends
    found = [backends.cuda.matmul, *(getattr(backends.mkldnn, name, None) for name in ("matmul", "conv"))]
    return [part for part in found if hasattr(part, "fp32_precision")]
