"""Convolution as a bilinear map z = x ∗ w + b, with a second derivative made of ordinary convolutions.

PyTorch's own second derivative in the weights convolves with a whole image as the kernel, which its CPU
library does slowly. Written out, every term is one of the three maps that training uses: the convolution
itself and its two adjoints. On the CPU images are given to it with the channels last, which that library
needs no reordering for. What comes out has the channels last too, unless a network looks at the order of its
memory (``view``): then it is put back.

Symbols: u is the cotangent of z; x̂ = w ⋆ u, ŵ = x ⋆ u and b̂ = Σu are those of x, w and b; ξ, ω and β are the
cotangents of x̂, ŵ and b̂.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d
Geometry = tuple[list[int], list[int], list[int], int]  # stride, padding, dilation, groups
Layout = Literal["channels last", "as given", "forward mode"]
"""The order in memory of the images that come out; "forward mode" is PyTorch's own convolution."""
LAYOUTS: tuple[Layout, ...] = ("channels last", "as given")


def convolved(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None, layout: Layout) -> Tensor:
    plain = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    low = torch.is_autocast_enabled(x.device.type)  # PyTorch's own casts images and weights
    if low or layout == "forward mode" or not plain or x.ndim != weight.ndim:
        twice = layout == "forward mode"  # GroupNorm then fails on images whose channels are last
        output: Tensor = layer._conv_forward(_arranged(x) if twice or low else x, weight, bias)
        return output.contiguous() if twice else output
    geometry = (list(layer.stride), list(layer.padding), list(layer.dilation), layer.groups)
    convolution: Tensor = _Convolution.apply(_arranged(x), weight, bias, geometry)  # type: ignore[no-untyped-call]
    return convolution if layout == "channels last" or not x.is_contiguous() else convolution.contiguous()


class _Convolution(torch.autograd.Function):
    """(x, w, b) ↦ x ∗ w + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.geometry = geometry
        return _forward(x, w, b, geometry)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        return *_Adjoint.apply(_arranged(u), x, w, ctx.geometry, ctx.needs_input_grad[:3]), None  # type: ignore[no-untyped-call]


class _Adjoint(torch.autograd.Function):
    """(u, x, w) ↦ (x̂, ŵ, b̂), whichever are needed."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, x: Tensor, w: Tensor, geometry: Geometry, needed: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, ...]:
        ctx.save_for_backward(u, x, w)
        ctx.geometry = geometry
        ctx.set_materialize_grads(False)
        return _adjoint(u, x, w, geometry, needed)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, xi: Tensor | None, omega: Tensor | None, beta: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        u, x, w = ctx.saved_tensors
        needs_u, needs_x, needs_w = ctx.needs_input_grad[:3]
        of_u = of_x = of_w = None
        if needs_u:
            if omega is not None:
                of_u = _forward(x, omega, beta, ctx.geometry)
            elif beta is not None:
                of_u = beta.view(1, -1, *[1] * (u.ndim - 2)).expand_as(u)
            if xi is not None:
                through = _forward(_arranged(xi), w, None, ctx.geometry)
                of_u = through if of_u is None else through.add_(of_u)
        if needs_x and omega is not None:
            of_x = _adjoint(u, x, omega, ctx.geometry, (True, False, False))[0]
        if needs_w and xi is not None:
            of_w = _adjoint(u, _arranged(xi), w, ctx.geometry, (False, True, False))[1]
        return of_u, of_x, of_w, None, None


def _forward(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    stride, padding, dilation, groups = geometry
    return torch.convolution(x, w, b, stride, padding, dilation, False, [0] * len(stride), groups)


def _adjoint(
    u: Tensor, x: Tensor, w: Tensor, geometry: Geometry, needed: tuple[bool, bool, bool]
) -> tuple[Tensor | None, ...]:
    stride, padding, dilation, groups = geometry
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        u, x, w, [w.shape[0]], stride, padding, dilation, False, [0] * len(stride), groups, list(needed)
    )
    return found


def _arranged(x: Tensor) -> Tensor:
    if x.ndim == 4 and x.device.type == "cpu" and x.dtype == torch.float32:
        return x.contiguous(memory_format=torch.channels_last)
    return x
