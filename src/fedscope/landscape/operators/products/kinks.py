"""Kinks of a network held where they are at its weights, while the weights are moved.

A ReLU, a clamp or a maximum has no second derivative where it bends, and automatic differentiation takes none
there: its Hessian is that of the piece on which the weights lie. A finite step would cross bends of some of
a network's many activations, and count each as curvature. So the pieces are recorded at the weights, and
taken at every other point: an elementwise function as slope·x + offset, max-pooling as the entries it chose.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Piece = tuple[Tensor, Tensor]

_ELEMENTWISE: dict[Any, Any] = {  # each function that may be called, and the same not in place
    function: plain
    for plain, functions in (
        (torch.relu, (F.relu, torch.relu, Tensor.relu, torch.relu_, Tensor.relu_)),
        (F.leaky_relu, (F.leaky_relu, F.leaky_relu_)),
        (F.hardtanh, (F.hardtanh, F.hardtanh_)),
        (F.relu6, (F.relu6,)),
        (F.hardsigmoid, (F.hardsigmoid,)),
        (F.hardshrink, (F.hardshrink, torch.hardshrink)),
        (F.softshrink, (F.softshrink,)),
        (F.threshold, (F.threshold, torch.threshold)),
        (torch.abs, (torch.abs, Tensor.abs, torch.abs_, Tensor.abs_, Tensor.__abs__)),
        (torch.clamp, (torch.clamp, Tensor.clamp, torch.clamp_, Tensor.clamp_)),
        (torch.clamp_min, (torch.clamp_min, Tensor.clamp_min, torch.clamp_min_, Tensor.clamp_min_)),
        (torch.clamp_max, (torch.clamp_max, Tensor.clamp_max, torch.clamp_max_, Tensor.clamp_max_)),
    )
    for function in functions
}
_INDEXED = (
    F.max_pool1d_with_indices, F.max_pool2d_with_indices, F.max_pool3d_with_indices,
    F.adaptive_max_pool1d_with_indices, F.adaptive_max_pool2d_with_indices,
    F.adaptive_max_pool3d_with_indices,
)  # fmt: skip
_POOLS: dict[Any, int] = {  # by the dimensions that are pooled over
    F.max_pool1d: 1, F.max_pool2d: 2, F.max_pool3d: 3,
    F.adaptive_max_pool1d: 1, F.adaptive_max_pool2d: 2, F.adaptive_max_pool3d: 3,
    **dict(zip(_INDEXED, (1, 2, 3, 1, 2, 3), strict=True)),
}  # fmt: skip


class Kinks(TorchFunctionMode):
    """Within it the pieces of kinked functions are recorded; once it is rewound, they are taken.

    A function that is not called in the same order, or on another shape, is evaluated as it is, and so is a
    kinked one that is not known here: the third difference shows what comes of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[Piece] = []
        self._next: int | None = None

    @property
    def any(self) -> bool:
        return bool(self._pieces)

    def rewind(self) -> "Kinks":
        self._next = 0
        return self

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _ELEMENTWISE and _plain(*args, *kwargs.values()):
            return self._elementwise(func, args, kwargs)
        if func in _POOLS:
            return self._pooled(func, args, kwargs)
        return func(*args, **kwargs)

    def _elementwise(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, *rest = args
        if self._next is None:
            plain = {name: value for name, value in kwargs.items() if name != "inplace"}
            with torch.enable_grad():
                at = x.detach().clone().requires_grad_(True)
                y = _ELEMENTWISE[func](at, *rest, **plain)
                (slope,) = torch.autograd.grad(y.sum(), at)
            self._pieces.append((slope, (y - slope * at).detach()))
        elif piece := self._piece():
            slope, offset = piece
            if slope.shape == x.shape:
                return x.mul_(slope).add_(offset) if _in_place(func, kwargs) else x * slope + offset
        return func(*args, **kwargs)

    def _pooled(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wanted = func in _INDEXED
        if self._next is None:
            y, indices = func(*args, **{**kwargs, "return_indices": True})
            self._pieces.append((indices, indices))
        elif piece := self._piece():
            indices, first = piece[0], -_POOLS[func]
            y = args[0].flatten(first).gather(-1, indices.flatten(first)).view(indices.shape)
        else:
            return func(*args, **kwargs)
        return (y, indices) if wanted else y

    def _piece(self) -> Piece | None:
        assert self._next is not None
        self._next += 1
        return self._pieces[self._next - 1] if self._next <= len(self._pieces) else None


def _plain(x: Any, *others: Any) -> bool:
    """Say whether a function is of one tensor of real numbers; positions, say, are integers."""
    alone = not any(isinstance(other, Tensor) for other in others)
    return alone and isinstance(x, Tensor) and x.is_floating_point()


def _in_place(func: Any, kwargs: dict[str, Any]) -> bool:
    name: str = func.__name__
    return bool(kwargs.get("inplace")) or (name.endswith("_") and not name.endswith("__"))
