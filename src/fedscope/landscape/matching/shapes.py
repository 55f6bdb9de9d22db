"""Rules of operations that move, join, cut and lengthen axes and compute nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fedscope.landscape.matching.channels import EQUAL, Axis, Piece, divided, fixed, is_still, merged
from fedscope.landscape.matching.tracing import Args, Named, Rule, Tracer


def _same(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
    tracer.set(out, tracer.axes(args[0]))


def _t(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    tracer.set(out, tracer.axes(args[0])[::-1])


def _transpose(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    axes = list(tracer.axes(args[0]))
    axes[args[1]], axes[args[2]] = axes[args[2]], axes[args[1]]
    tracer.set(out, axes)


def _permute(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    axes = tracer.axes(args[0])
    tracer.set(out, [axes[dim] for dim in args[1]])


def _cat(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    dim = (args[1] if len(args) > 1 else 0) % out.ndim
    tensors = [tensor for tensor in args[0] if tensor.ndim == out.ndim]
    axes = list(tracer.axes(tensors[0]))
    for tensor in tensors[1:]:
        for place, axis in enumerate(tracer.axes(tensor)):
            axes[place] = axes[place] + axis if place == dim else tracer.channels.joined(axes[place], axis)
    tracer.set(out, axes)


def _slice(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    given = [*args, *(0, None, None, 1)[len(args) - 1 :]]
    x, dim, begin, step = given[0], given[1], given[2], given[4]
    dim %= x.ndim
    axes, size = list(tracer.axes(x)), out.shape[dim]
    begin = min(max((begin or 0) + (x.shape[dim] if (begin or 0) < 0 else 0), 0), x.shape[dim])
    if size != x.shape[dim]:
        axes[dim] = _taken(tracer, axes[dim], begin, size, step)
    tracer.set(out, axes)


def _taken(tracer: Tracer, axis: Axis, begin: int, size: int, step: int = 1) -> Axis:
    if step != 1:
        tracer.channels.fix(axis, "a slice with a step")
    if is_still(tracer.channels.resolved(axis)):
        return fixed(size)
    return tracer.channels.cut(axis, [begin, begin + size])[1]


def _split(tracer: Tracer, args: Args, named: Named, out: Sequence[Tensor]) -> None:
    dim = (args[2] if len(args) > 2 else named.get("dim", 0)) % args[0].ndim
    begin = 0
    for tensor in out:
        axes = list(tracer.axes(args[0]))
        axes[dim] = _taken(tracer, axes[dim], begin, tensor.shape[dim])
        begin += tensor.shape[dim]
        tracer.set(tensor, axes)


def _select(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    axes = list(tracer.axes(args[0]))
    tracer.channels.fix(axes.pop(args[1]), "one channel taken")
    tracer.set(out, axes)


def _pad(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    axes = list(tracer.axes(args[0]))
    for place in range(len(args[1]) // 2):
        dim, (before, after) = -1 - place, args[1][2 * place : 2 * place + 2]
        if before < 0 or after < 0:
            axes[dim] = tracer.channels.fix(axes[dim], "negative padding")
            axes[dim] = fixed(out.shape[dim])
        elif before or after:
            sides = [(Piece(EQUAL, count),) if count else () for count in (before, after)]
            axes[dim] = (*sides[0], *axes[dim], *sides[1])
    tracer.set(out, axes)


def _view(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    """Match runs of axes with one product of lengths."""
    axes, old, new = list(tracer.axes(args[0])), list(args[0].shape), list(out.shape)
    found, i, j = list[Axis](), 0, 0
    while i < len(old) or j < len(new):
        first, before = i, j
        left = right = 1
        while True:
            if i < len(old) and (left <= right or j == len(new)):
                left, i = left * old[i], i + 1
            elif j < len(new):
                right, j = right * new[j], j + 1
            if left == right and i > first and (j > before or j == len(new)):
                break
            if i == len(old) and j == len(new):
                break
        if j - before == i - first == 1:
            found.append(axes[first])
        else:
            found += divided(tracer.channels, merged(tracer.channels, axes[first:i]), new[before:j])
    tracer.set(out, found)


def _expanded(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    tracer.set(out, tracer.broadcast(args[:1], out))


SHAPES: Mapping[str, Rule] = {
    **dict.fromkeys(("clone", "detach", "alias", "_to_copy", "contiguous", "lift_fresh"), _same),
    "t": _t,
    "transpose": _transpose,
    "permute": _permute,
    "cat": _cat,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "select": _select,
    "constant_pad_nd": _pad,
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _view),
    "expand": _expanded,
}
