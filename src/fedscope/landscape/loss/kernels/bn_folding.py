"""BatchNorm by running statistics folded into the layer before it, as a function of the original parameters.

With μ and σ² = running_var + ε fixed, BatchNorm is y = (z − μ)·γ/σ + β. After a convolution or linear layer
z = w∗x + b this is the same layer with w' = w·γ/σ and b' = (b − μ)·γ/σ + β (Jacob et al. 2018, section 3.2).
Computed anew in every evaluation, w' and b' carry the derivatives to w, b, γ and β exactly, and neither z nor
the double backward of ``native_batch_norm`` costs anything any more.

Whether a layer feeds its BatchNorm and nothing else is read off the autograd graph of one forward pass.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.functional import linear
from torch.nn.modules.batchnorm import _BatchNorm

from fedscope.landscape.loss.kernels.conv_double_backward import Layer, Layout, convolved

_Foldable = Layer | nn.Linear
Functions = dict[nn.Module, Callable[[Tensor], Tensor]]
_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class Fold:
    """Faster forward functions for the layers of a frozen model, put in their places or taken out again.

    BatchNorm by running statistics is folded where it can be and is one multiplication and addition
    elsewhere; convolutions get the derivatives of :mod:`.conv_double_backward`.
    Subclasses of these layers, those with a forward of their own, and those with hooks that look at what is
    folded, stay as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = [m for m in model.modules() if _is_layer(m)]
        self._norms = [m for m in model.modules() if _is_norm(m)]
        self._partners: dict[_BatchNorm, _Foldable] | None = None
        self._functions: Functions = {}

    @property
    def empty(self) -> bool:
        return not self._norms and all(isinstance(layer, nn.Linear) for layer in self._layers)

    @property
    def folded(self) -> bool:
        """Whether some layer puts out other numbers than its own, at which a forward may look."""
        return bool(self._partners)

    def install(self, layout: Layout, evaluate: Callable[[], Tensor]) -> None:
        if self._partners is None:
            self._partners = _partners(self._layers, self._norms, evaluate) if self._norms else {}
        self._functions = self._made(layout)
        _put(self._functions)

    def _made(self, layout: Layout) -> Functions:
        made: Functions = {
            layer: partial(_plain, layer, layout)
            for layer in self._layers
            if not isinstance(layer, nn.Linear)
        }
        made |= {norm: partial(_affine, norm) for norm in self._norms}
        for norm, layer in (self._partners or {}).items():
            made[layer] = partial(_folded, layer, norm, layout)
            made[norm] = _same
        return made

    def remove(self) -> None:
        for module in self._functions:
            module.__dict__.pop("forward", None)
        self._functions = {}

    @contextmanager
    def forward_mode(self) -> Iterator[None]:
        if self._functions:
            _put(self._made("forward mode"))
        try:
            yield
        finally:
            _put(self._functions)

    @contextmanager
    def aside(self) -> Iterator[None]:
        inside = [module for module in self._functions if module.__dict__.pop("forward", None) is not None]
        try:
            yield
        finally:
            for module in inside:  # none within another ``aside``
                module.__dict__["forward"] = self._functions[module]


def _put(functions: Functions) -> None:
    for module, function in functions.items():
        module.__dict__["forward"] = function


def _is_layer(module: nn.Module) -> TypeGuard[_Foldable]:
    return type(module) in _LAYERS and "forward" not in module.__dict__


def _is_norm(module: nn.Module) -> TypeGuard[_BatchNorm]:
    return (
        type(module) in _NORMS
        and isinstance(module.running_mean, Tensor)
        and "forward" not in module.__dict__
    )


def _partners(
    layers: list[_Foldable], norms: list[_BatchNorm], evaluate: Callable[[], Tensor]
) -> dict[_BatchNorm, _Foldable]:
    """Return the BatchNorms that can be folded, each with the layer before it."""
    made: dict[Node, _Foldable] = {}
    taken: dict[_BatchNorm, _Foldable] = {}
    calls: Counter[nn.Module] = Counter()

    def after(layer: _Foldable, _: object, output: Tensor) -> None:
        calls[layer] += 1
        if output.grad_fn is not None:
            made[output.grad_fn] = layer

    def before(norm: _BatchNorm, args: tuple[Tensor]) -> None:
        calls[norm] += 1
        layer = made.get(args[0].grad_fn) if args[0].grad_fn is not None else None
        if layer is not None and args[0].ndim == layer.weight.ndim:  # its channels, not a sequence's places
            taken[norm] = layer

    # Who has hooks is left alone: somebody looks between the layer and its BatchNorm.
    handles = [layer.register_forward_hook(after) for layer in layers if not layer._forward_hooks]
    for norm in norms:
        if not (norm._forward_hooks or norm._forward_pre_hooks):
            handles.append(norm.register_forward_pre_hook(before))
    fixed = [
        p for m in (*layers, *norms) for p in m.parameters() if p.is_floating_point() and not p.requires_grad
    ]
    for p in fixed:
        p.requires_grad_(True)
    try:
        with torch.enable_grad():
            used = _uses(evaluate())
    finally:
        for p in fixed:
            p.requires_grad_(False)
        for handle in handles:
            handle.remove()
    nodes = {layer: node for node, layer in made.items()}
    return {
        norm: layer for norm, layer in taken.items() if used[nodes[layer]] == calls[norm] == calls[layer] == 1
    }


def _uses(output: Tensor) -> Counter[Node]:
    used: Counter[Node] = Counter()
    waiting = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        for parent, _ in node.next_functions:
            if parent is not None:
                used[parent] += 1
                if used[parent] == 1:
                    waiting.append(parent)
    return used


def _scale_and_shift(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    """Return γ/σ and β − μ·γ/σ, (channels,) each."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = torch.rsqrt(norm.running_var + norm.eps)
    scale = scale if norm.weight is None else norm.weight * scale
    shift = -norm.running_mean * scale
    return scale, shift if norm.bias is None else norm.bias + shift


def _folded(layer: _Foldable, norm: _BatchNorm, layout: Layout, x: Tensor) -> Tensor:
    scale, shift = _scale_and_shift(norm)
    weight, bias = layer.weight, layer.bias
    weight = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    bias = shift if bias is None else torch.addcmul(shift, bias, scale)
    if isinstance(layer, nn.Linear):
        return linear(x, weight, bias)
    return convolved(layer, x, weight, bias, layout)


def _plain(layer: Layer, layout: Layout, x: Tensor) -> Tensor:
    return convolved(layer, x, layer.weight, layer.bias, layout)


def _affine(norm: _BatchNorm, x: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, shift = _scale_and_shift(norm)
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


def _same(x: Tensor) -> Tensor:
    return x
