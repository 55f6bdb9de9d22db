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

_PLAIN = {  # not in place
    "relu": torch.relu, "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "relu6": F.relu6,
    "hardsigmoid": F.hardsigmoid, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
    "threshold": F.threshold, "abs": torch.abs, "__abs__": torch.abs, "clamp": torch.clamp,
    "clamp_min": torch.clamp_min, "clamp_max": torch.clamp_max,
}  # fmt: skip
_ELEMENTWISE: dict[Any, Any] = {  # each function that may be called, and the same not in place
    getattr(place, called): plain
    for name, plain in _PLAIN.items()
    for called in (name, f"{name}_")
    for place in (F, torch, Tensor)
    if hasattr(place, called)
}
_POOLS: dict[Any, int] = {  # by the dimensions that are pooled over
    getattr(F, f"{name}{dims}d{ending}"): dims
    for name in ("max_pool", "adaptive_max_pool")
    for dims in (1, 2, 3)
    for ending in ("", "_with_indices")
}
_INDEXED = {function for function in _POOLS if function.__name__.endswith("_with_indices")}


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
