"""Which channels of a network are tied, found by watching what it does with some samples.

Every axis of every weight and buffer starts as a group of its own. The network runs once, on a copy, and each
of PyTorch's operations that it calls says what of its operands' axes must be the same
(:mod:`.operations`). Nothing is assumed about layers or their names: a module that is written by hand is seen
through to the operations that it is made of.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.kernels.exact_arithmetic import attention_by_parts
from fedscope.landscape.loss.trees import Tree, arguments, cloned, within
from fedscope.landscape.matching.channels import EQUAL, FIXED, Axis, Channels, Piece, fixed

Axes = tuple[Axis, ...]
Args = Sequence[Any]
Named = Mapping[str, Any]
Rule = Callable[["Tracer", Args, Named, Any], None]
"""(tracer, positional, named arguments, result) of an operation ↦ nothing: it sets the result's axes."""


class Tracer(TorchDispatchMode):
    """Watches operations and keeps the axes of every tensor.

    ``rules`` are by name, of the operations that are no functions of single entries.
    """

    def __init__(self, state: Sequence[Tensor], rules: Mapping[str, Rule]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.channels = Channels()
        self._rules = rules
        self._known: dict[int, tuple[Tensor, Axes]] = {}
        self._sharing: dict[int, set[int]] = {}  # tensors by the memory that they are views of
        self._state = {id(tensor) for tensor in state}
        self.used: set[int] = set()  # of the state
        for tensor in state:
            self.set(tensor, tuple(map(self.channels.new, tensor.shape)))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        operands = list(within([*args, *named.values()]))
        out = func(*args, **named)
        self.used |= {id(tensor) for tensor in operands} & self._state
        name = str(func).split(".")[1]
        rule = self._rules.get(name) or self._rules.get(name.removesuffix("_"))
        if rule is not None:
            rule(self, args, named, out)
        elif torch.Tag.pointwise in func.tags:
            self.set(out, self.broadcast(operands, out))
        elif operands:
            self.give_up(name, operands, out)
        if func._schema.is_mutable:
            self._written(list(within(out)))
        return out

    def axes(self, tensor: Tensor) -> Axes:
        """Return what is known of a tensor's axes; of a constant, along which its entries are equal."""
        if id(tensor) not in self._known:
            self.set(tensor, tuple(_constant(tensor, dim) for dim in range(tensor.ndim)))
        return tuple(map(self.channels.resolved, self._known[id(tensor)][1]))

    def set(self, tensor: Tensor, axes: Sequence[Axis]) -> None:
        """Keep the axes of a tensor, and the tensor, so that no other gets its identity."""
        self._known[id(tensor)] = tensor, tuple(axes)
        self._sharing.setdefault(tensor.untyped_storage()._cdata, set()).add(id(tensor))

    def broadcast(self, operands: Sequence[Tensor], out: Tensor) -> Axes:
        """Return the axes of a result whose entries are functions of its operands' entries."""
        found: list[Axis] = [(Piece(EQUAL, length),) if length > 1 else fixed(length) for length in out.shape]
        for tensor in operands:
            begin = out.ndim - tensor.ndim
            for dim, axis in enumerate(self.axes(tensor)):
                if tensor.shape[dim] > 1:
                    found[begin + dim] = self.channels.joined(found[begin + dim], axis)
        return tuple(found)

    def tie(self, tensor: Tensor, dim: int, axis: Axis) -> Axis:
        return self.channels.joined(self.axes(tensor)[dim], axis)

    def give_up(self, name: str, operands: Sequence[Tensor], out: Any) -> None:
        """Leave all channels of the operands where they are: what the operation does with them is unknown."""
        for tensor in operands:
            for axis in self.axes(tensor):
                self.channels.fix(axis, name)
        for tensor in within(out):
            self.set(tensor, tuple(map(fixed, tensor.shape)))

    def _written(self, tensors: Sequence[Tensor]) -> None:
        """Leave channels where they are of all that has other views: what is true of these is unknown."""
        for tensor in tensors:
            views = self._sharing.get(tensor.untyped_storage()._cdata, set())
            if len(views) > 1:
                known = [self._known[view][0] for view in views]
                self.give_up("a write to a part of a tensor", known, known)


def trace(model: nn.Module, inputs: Tree, rules: Mapping[str, Rule]) -> tuple[Channels, dict[str, Axes]]:
    """Return the groups of channels, and the resolved axes of every tensor of the ``state_dict``.

    All that the network gives for the ``inputs`` keeps its order.
    """
    own = whole_copy(model).eval().requires_grad_(False)
    state = own.state_dict(keep_vars=True)
    tensors = list({id(tensor): tensor for tensor in state.values()}.values())
    tracer = Tracer(tensors, rules)
    samples = cloned(inputs)
    positional, named = arguments(samples)
    for tensor in within(samples):
        tracer.set(tensor, tuple(map(fixed, tensor.shape)))
    with torch.no_grad(), attention_by_parts(), tracer:
        out = own(*positional, **named)
    for tensor in within(out):
        for axis in tracer.axes(tensor):
            tracer.channels.fix(axis)
    for tensor in tensors:
        if id(tensor) not in tracer.used:
            for axis in tracer.axes(tensor):
                tracer.channels.fix(axis)
    return tracer.channels, {name: tracer.axes(tensor) for name, tensor in state.items()}


def is_constant(tensor: Tensor, dim: int) -> bool:
    """Say whether all entries along a dimension are equal, so that any order leaves them as they are."""
    return not tensor.numel() or bool((tensor == tensor.narrow(dim, 0, 1)).all())


def _constant(tensor: Tensor, dim: int) -> Axis:
    length = tensor.shape[dim]
    if length < 2 or not tensor.numel():
        return fixed(length)
    return (Piece(EQUAL if is_constant(tensor, dim) else FIXED, length),)
