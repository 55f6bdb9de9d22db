"""Logits of many classes, such as a vocabulary's, that are never all in memory at once.

Within :class:`ChunkedLogits` the output layer of a network returns its inputs h in the form of the logits
Wh + b that it would compute. Indexing, reshaping and transposing them moves h alone, and
``torch.nn.functional.cross_entropy`` of them goes over chunks of positions, whose logits are computed again
for each derivative. Anything else that is done with them computes them as a whole: the numbers are the same,
and ``whole`` says what it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedscope.landscape.loss.recomputed.blocks import recomputed
from fedscope.landscape.loss.recomputed.heads import DrawnHead, Head

CLASSES = 4096  # of an output layer whose logits are chunked
_CHUNK = 64 << 20  # bytes of a chunk's logits


class ChunkedLogits:
    """The output layer of a network, if it has one of so many classes: its largest linear layer."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if type(module) is nn.Linear]
        largest = max(layers, key=lambda layer: layer.out_features, default=None)
        self._layer = largest if largest and largest.out_features >= CLASSES else None
        self.whole = ""
        self._heads: list[Head] | None = None

    @property
    def found(self) -> bool:
        return self._layer is not None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        layer = self._layer
        if layer is None or "forward" in layer.__dict__:  # one that is already something else
            yield
            return
        layer.forward = lambda h: Logits.of(h, layer, self)  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            del layer.forward

    @contextmanager
    def apart(self) -> Iterator[list[Head]]:
        """Let cross-entropies of such logits be leaves, and list the heads that they are of."""
        found = self._heads = []
        try:
            yield found
        finally:
            self._heads = None


class Logits(Tensor):
    """Wh + b without numbers, from ``inputs`` h (…, d): of shape (…, classes), or (samples, classes, …)."""

    inputs: Tensor
    _layer: nn.Linear
    _owner: ChunkedLogits
    _second: bool  # the classes are the second dimension, as cross_entropy has them

    @classmethod
    def of(cls, h: Tensor, layer: nn.Linear, owner: ChunkedLogits, *, second: bool = False) -> "Logits":
        shape = (*h.shape[:-1], layer.out_features)
        if second:
            shape = (shape[0], shape[-1], *shape[1:-1])
        found: Logits = Tensor._make_wrapper_subclass(
            cls, shape, dtype=h.dtype, device=h.device, requires_grad=False
        )
        found.inputs, found._layer, found._owner, found._second = h, layer, owner, second
        return found

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _KNOWN:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        first = args[0] if args else None
        if func in _MOVED and isinstance(first, Logits):
            moved = _MOVED[func](first, *args[1:], **kwargs)
            if moved is not None:
                return moved
        if func is F.cross_entropy and isinstance(first, Logits):
            loss = first._cross_entropy(*args[1:], **kwargs)
            if loss is not None:
                return loss
        return func(*map(_computed(func), args), **{name: _computed(func)(x) for name, x in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError(f"{func} of logits that are not computed")

    def _moved(self, h: Tensor, *, second: bool | None = None) -> "Logits":
        return Logits.of(h, self._layer, self._owner, second=self._second if second is None else second)

    def tracked(self) -> "Logits":
        """Return them as of inputs that have a gradient, in a network that is frozen below them too."""
        return self if self.inputs.requires_grad else self._moved(self.inputs.detach().requires_grad_(True))

    @torch.no_grad()
    def largest(self) -> float:
        parts = self.inputs.reshape(-1, self.inputs.shape[-1]).split(self._chunk)
        return max(
            float(F.linear(h, self._layer.weight, self._layer.bias).nan_to_num_(0, 0, 0).abs_().max())
            for h in parts
        )

    @property
    def _chunk(self) -> int:
        return max(1, _CHUNK // (self._layer.out_features * self.inputs.itemsize))

    def _numbers(self, func: Any) -> Tensor:
        self._owner.whole = self._owner.whole or str(getattr(func, "__name__", func))
        return self.computed()

    def computed(self) -> Tensor:
        logits = F.linear(self.inputs, self._layer.weight, self._layer.bias)
        return logits.movedim(-1, 1) if self._second else logits

    def drawn(self, labels: Tensor, labelled: Tensor) -> DrawnHead:
        """Return their head with labels (n, S, …) drawn for n samples; the mean is over ``labelled`` ones."""
        h, places = self.inputs.reshape(-1, self.inputs.shape[-1]), labelled.reshape(-1)
        weights = torch.full_like(h[:, 0], 1 / max(1, int(places.sum()))).detach()
        rows = labels.movedim(1, -1).reshape(len(h), -1)
        return DrawnHead(
            h, self._layer, places, self._chunk, weights=weights, drawn=rows, samples=len(labels)
        )

    def _cross_entropy(self, target: Tensor, *rest: Any, **options: Any) -> Tensor | None:
        """Return the loss by chunks; None where the call is of another kind."""
        smoothing, ignored = options.pop("label_smoothing", 0.0), options.pop("ignore_index", -100)
        weight, reduction = options.pop("weight", None), options.pop("reduction", "mean")
        classes_last = self._second or self.inputs.ndim == 2
        if rest or any(value is not None for value in options.values()) or not classes_last:
            return None
        if target.is_floating_point() or weight is not None or smoothing:
            return None
        h, labels = self.inputs.reshape(-1, self.inputs.shape[-1]), target.reshape(-1)
        bias = () if self._layer.bias is None else (self._layer.bias,)
        losses = [
            recomputed(_losses(own, ignored), part, self._layer.weight, *bias)[0]
            for part, own in zip(h.split(self._chunk), labels.split(self._chunk), strict=True)
        ]
        each = torch.cat(losses)
        if (heads := self._owner._heads) is not None:
            each = each.detach().requires_grad_(True)
            heads.append(Head(h, self._layer, labels != ignored, self._chunk, each))
        if reduction == "none":
            return each.view(target.shape)
        total = each.sum()
        return total if reduction == "sum" else total / (labels != ignored).sum()


def _losses(labels: Tensor, ignored: int) -> Callable[..., tuple[Tensor, ...]]:
    def of(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
        return (F.cross_entropy(F.linear(h, weight, bias), labels, ignore_index=ignored, reduction="none"),)

    return of


def _computed(func: Any) -> Callable[[Any], Any]:
    def computed(value: Any) -> Any:
        if isinstance(value, Logits):
            return value._numbers(func)
        return type(value)(map(computed, value)) if type(value) in (tuple, list) else value

    return computed


def _indexed(logits: Logits, index: Any) -> Logits | None:
    """Return some positions; None where classes are chosen too."""
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(part is ... for part in parts):
        at = next(i for i, part in enumerate(parts) if part is ...)
        parts[at : at + 1] = [slice(None)] * (logits.ndim - len(parts) + 1)
    if not all(isinstance(part, slice) for part in parts) or (logits._second and len(parts) > 1):
        return None
    all_classes = len(parts) < logits.ndim or parts.pop() == slice(None)
    return logits._moved(logits.inputs[tuple(parts)]) if all_classes else None


def _reshaped(func: Any, logits: Logits, *args: Any, **options: Any) -> Logits | None:
    """Return positions in another shape; None where classes do not stay the last dimension."""
    shape = func(torch.empty(logits.shape, device="meta"), *args, **options).shape
    if logits._second or shape[-1] != logits.shape[-1]:
        return None
    return logits._moved(logits.inputs.reshape(*shape[:-1], logits.inputs.shape[-1]))


def _transposed(func: Any, logits: Logits, *args: Any, **options: Any) -> Logits | None:
    """Return (samples, classes, positions) of (samples, positions, classes), and back."""
    told_apart = torch.empty(tuple(range(logits.ndim)), device="meta")  # no two sizes are equal
    order = tuple(func(told_apart, *args, **options).shape)
    if order == tuple(range(logits.ndim)):
        return logits
    return logits._moved(logits.inputs, second=not logits._second) if order == (0, 2, 1) else None


def _cast(logits: Logits, *to: Any, **options: Any) -> Logits | None:
    wanted = [*to, *options.values()] or [torch.float32]
    return logits if all(one in (logits.dtype, logits.device) for one in wanted) else None


_RESHAPING = (Tensor.view, Tensor.reshape, torch.reshape, Tensor.flatten, torch.flatten)
_TRANSPOSING = (Tensor.transpose, torch.transpose, Tensor.permute, torch.permute, Tensor.movedim)
_MOVED: dict[Any, Callable[..., Logits | None]] = {
    **{func: partial(_reshaped, func) for func in _RESHAPING},
    **{func: partial(_transposed, func) for func in _TRANSPOSING},
    Tensor.__getitem__: _indexed,
    Tensor.contiguous: lambda logits: logits,
    Tensor.float: _cast,
    Tensor.to: _cast,
}
_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "requires_grad", "layout")
_KNOWN = {
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point, torch.is_floating_point,
    *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
}  # fmt: skip
