"""BatchNorm by running statistics folded into the layer before it, as a function of the original parameters.

With μ and σ² = running_var + ε fixed, BatchNorm is y = (z − μ)·γ/σ + β. After a convolution or linear layer
z = w∗x + b this is the same layer with w' = w·γ/σ and b' = (b − μ)·γ/σ + β (Jacob et al. 2018, section 3.2).
Computed anew in every evaluation, w' and b' carry the derivatives to w, b, γ and β exactly, and neither z nor
the double backward of ``native_batch_norm`` costs anything any more.

Whether a layer feeds its BatchNorm and nothing else is read off the autograd graph of one forward pass.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.functional import linear

from fedscope.landscape.convolution import convolved
from fedscope.landscape.preflight import close

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LAYERS = (*_CONVOLUTIONS, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def fold(model: nn.Module, evaluate: Callable[[], Tensor]) -> None:
    """Give the layers of a frozen ``model`` faster forward functions that compute the same.

    BatchNorm by running statistics is folded where it can be and is one multiplication and addition
    elsewhere; convolutions get the derivatives of :mod:`fedscope.landscape.convolution`. Subclasses of these
    layers, and those with hooks that look at what is folded, stay as they are.
    If the outputs do not agree to rounding, all do.
    """
    layers = [m for m in model.modules() if type(m) in _CONVOLUTIONS]
    norms = [m for m in model.modules() if type(m) in _NORMS and _fixed(m)]
    if not (layers or norms):
        return
    with torch.no_grad():
        before = evaluate()
    partners = _partners(model, evaluate) if norms else {}
    for layer in layers:
        layer.forward = partial(_plain, layer)
    for norm in norms:
        norm.forward = partial(_affine, norm)
    for norm, layer in partners.items():
        layer.forward = partial(_folded, layer, norm)
        norm.forward = _same
    with torch.no_grad():
        after = evaluate()
    if not close(before, after, before.dtype):
        for module in (*layers, *norms, *partners.values()):
            module.__dict__.pop("forward", None)


def _fixed(norm: nn.Module) -> bool:
    return norm.running_mean is not None and norm.running_var is not None


def _partners(model: nn.Module, evaluate: Callable[[], Tensor]) -> dict[nn.Module, nn.Module]:
    """Return the BatchNorms that can be folded, each with the layer before it."""
    made: dict[Node, nn.Module] = {}
    taken: dict[nn.Module, Node | None] = {}
    calls: Counter[nn.Module] = Counter()

    def after(layer: nn.Module, _: object, output: Tensor) -> None:
        calls[layer] += 1
        if output.grad_fn is not None:
            made[output.grad_fn] = layer

    def before(norm: nn.Module, args: tuple[Tensor]) -> None:
        calls[norm] += 1
        taken[norm] = args[0].grad_fn if _columns(args[0], norm) else None

    handles = [m.register_forward_hook(after) for m in model.modules() if _foldable(m, _LAYERS)]
    handles += [m.register_forward_pre_hook(before) for m in model.modules() if _foldable(m, _NORMS)]
    floating = [p for p in model.parameters() if p.is_floating_point()]
    for p in floating:
        p.requires_grad_(True)
    try:
        with torch.enable_grad():
            used = _uses(evaluate())
    finally:
        for p in floating:
            p.requires_grad_(False)
        for handle in handles:
            handle.remove()
    return {
        norm: made[node]
        for norm, node in taken.items()
        if node in made and used[node] == 1 == calls[norm] == calls[made[node]]
    }


def _foldable(module: nn.Module, types: tuple[type[nn.Module], ...]) -> bool:
    """Say whether nobody else looks between the layer and its BatchNorm."""
    watched = module._forward_hooks or (type(module) in _NORMS and module._forward_pre_hooks)
    return type(module) in types and not watched and (type(module) not in _NORMS or _fixed(module))


def _columns(x: Tensor, norm: nn.Module) -> bool:
    """Say whether the layer's outputs are what the BatchNorm counts as channels: dimension 1."""
    return x.grad_fn is not None and (x.ndim == 2 or x.grad_fn.name().startswith("Convolution"))


def _uses(output: Tensor) -> Counter[Node]:
    """Count how often each node of the graph is used by others."""
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


def _scale_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return γ/σ and β − μ·γ/σ, (channels,) each."""
    mean, variance, eps = norm.running_mean, norm.running_var, norm.eps
    assert isinstance(mean, Tensor)
    assert isinstance(variance, Tensor)
    assert isinstance(eps, float)
    scale = torch.rsqrt(variance + eps)
    if norm.weight is not None:
        scale = norm.weight * scale
    shift = -mean * scale
    return scale, shift if norm.bias is None else norm.bias + shift


def _folded(layer: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    scale, shift = _scale_and_shift(norm)
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor)
    weight = weight * scale.view(-1, *[1] * (weight.ndim - 1))
    bias = shift if bias is None else torch.addcmul(shift, bias, scale)
    return linear(x, weight, bias) if isinstance(layer, nn.Linear) else convolved(layer, x, weight, bias)


def _plain(layer: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(layer.weight, Tensor)
    return convolved(layer, x, layer.weight, layer.bias)


def _affine(norm: nn.Module, x: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (x.ndim - 2))
    scale, shift = _scale_and_shift(norm)
    return torch.addcmul(shift.view(shape), x, scale.view(shape))


def _same(x: Tensor) -> Tensor:
    return x
