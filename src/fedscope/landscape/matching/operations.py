"""What PyTorch's operations say of their operands' channels: a rule for each that is no function of entries.

Operations are those below autograd, to which modules and functions come down: ``linear`` is ``addmm`` of a
transpose, ``flatten`` is ``view``. Functions of single entries (activations, sums, products) need no rule;
what has none leaves the channels of its operands where they are.

Reductions (mean, softmax, norms over channels) take their entries in any order. A convolution of several
groups keeps the order of its inputs, unless it is depthwise; GroupNorm lets channels move within its groups
only, though whole groups might also change places.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedscope.landscape.loss.trees import within
from fedscope.landscape.matching.channels import Axis, Piece, fixed
from fedscope.landscape.matching.shapes import SHAPES
from fedscope.landscape.matching.tracing import Args, Named, Rule, Tracer


def _kept(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    """Normalise along some axes whatever the order: softmax."""
    tracer.set(out, tracer.axes(args[0]))


def _places(spatial: int) -> Rule:
    """Return a rule of what mixes positions of the last so many axes: pooling, interpolation."""

    def rule(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
        found = tracer.axes(args[0])
        first = out[0] if isinstance(out, tuple) else out
        kept = first.ndim - spatial
        for axis in found[kept:]:
            tracer.channels.fix(axis, "pooling over channels")
        for tensor in within(out):
            tracer.set(tensor, (*found[:kept], *map(fixed, tensor.shape[kept:])))

    return rule


def _convolution(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    x, weight, bias, transposed, groups = args[0], args[1], args[2], args[6], args[8]
    axes, kernel = tracer.axes(x), tracer.axes(weight)
    for axis in axes[2:]:
        tracer.channels.fix(axis, "convolution over channels")
    for axis in kernel[2:]:
        tracer.channels.fix(axis)
    inputs, outputs = (0, 1) if transposed else (1, 0)
    if groups == 1:
        tracer.tie(weight, inputs, axes[1])
    elif not transposed and weight.shape[1] == 1:  # depthwise: the outputs of a channel follow it
        each = weight.shape[0] // groups
        scaled = (Piece(p.group, p.length * each, p.each * each) for p in axes[1])
        tracer.tie(weight, 0, tuple(scaled))
    else:
        tracer.channels.fix(axes[1], "convolution of several groups")
        tracer.channels.fix(kernel[inputs], "convolution of several groups")
        if transposed:
            tracer.channels.fix(kernel[1], "convolution of several groups")
        else:
            size = weight.shape[0] // groups
            tracer.channels.cut(kernel[0], range(size, weight.shape[0], size))
    channels = tracer.axes(weight)[outputs] if groups == 1 or not transposed else fixed(out.shape[1])
    if bias is not None:
        channels = tracer.tie(bias, 0, channels)
    tracer.set(out, (axes[0], channels, *map(fixed, out.shape[2:])))


def _mm(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    _product(tracer, args[0], args[1], out)


def _addmm(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    _product(tracer, args[1], args[2], out)
    tracer.set(out, tracer.broadcast([out, args[0]], out))


def _product(tracer: Tracer, one: Tensor, other: Tensor, out: Tensor) -> None:
    """Contract the last axis of one with the one before the last, or only, of the other."""
    tracer.tie(other, max(other.ndim - 2, 0), tracer.axes(one)[-1])
    left, right = tracer.axes(one), tracer.axes(other)
    batch: list[Axis] = [tracer.channels.joined(*pair) for pair in zip(left[:-2], right[:-2], strict=False)]
    tracer.set(out, (*batch, *left[:-1][-1:], *(right[-1:] if other.ndim > 1 else ())))


def _normalised(first: int, *more: int) -> Rule:
    """Return a rule of a normalisation with one number per channel, axis 1, in operands at these places."""

    def rule(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
        axes = list(tracer.axes(args[0]))
        for place in (first, *more):
            if isinstance(args[place], Tensor):
                axes[1] = tracer.tie(args[place], 0, axes[1])
        for tensor in within(out):
            tracer.set(tensor, axes if tensor.ndim == len(axes) else (axes[1],) * tensor.ndim)

    return rule


def _group_norm(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
    x, groups = args[0], args[6]
    size = x.shape[1] // groups
    tracer.channels.cut(tracer.axes(x)[1], range(size, x.shape[1], size))
    _normalised(1, 2)(tracer, args, named, out[:1])
    for tensor in out[1:]:
        tracer.set(tensor, tuple(map(fixed, tensor.shape)))


def _layer_norm(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
    axes = list(tracer.axes(args[0]))
    begin = len(axes) - len(args[1])
    for operand in (args[2], args[3]):
        for dim in range(operand.ndim if isinstance(operand, Tensor) else 0):
            axes[begin + dim] = tracer.tie(operand, dim, axes[begin + dim])
    tracer.set(out[0], axes)
    for tensor in out[1:]:
        tracer.set(tensor, (*axes[:begin], *map(fixed, tensor.shape[begin:])))


def _reduced(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
    x = args[0]
    dims = args[1] if len(args) > 1 else named.get("dim")
    over = {dim % x.ndim for dim in ([dims] if isinstance(dims, int) else dims or range(x.ndim))}
    axes = tracer.axes(x)
    for tensor in within(out):
        keeps = tensor.ndim == x.ndim
        found = [
            fixed(1) if dim in over else axis for dim, axis in enumerate(axes) if keeps or dim not in over
        ]
        tracer.set(tensor, found)


def _cumulative(tracer: Tracer, args: Args, named: Named, out: Any) -> None:
    axes = list(tracer.axes(args[0]))
    axes[args[1]] = tracer.channels.fix(axes[args[1]], "an operation along channels")
    tracer.set(out, axes)


def _embedding(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    rows, columns = tracer.axes(args[0])
    tracer.channels.fix(rows, "embedding")
    tracer.set(out, (*tracer.axes(args[1]), columns))


def _two(tracer: Tracer, args: Args, named: Named, out: Tensor) -> None:
    tracer.set(out, tracer.broadcast([args[0], args[1]], out))


RULES: Mapping[str, Rule] = {
    **SHAPES,
    "_softmax": _kept,
    "_log_softmax": _kept,
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d"), _places(2)),
    **dict.fromkeys(("adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d"), _places(2)),
    **dict.fromkeys(("max_pool3d_with_indices", "avg_pool3d", "_adaptive_avg_pool3d"), _places(3)),
    "convolution": _convolution,
    **dict.fromkeys(("mm", "bmm", "mv", "dot"), _mm),
    "addmm": _addmm,
    "baddbmm": _addmm,
    "native_batch_norm": _normalised(1, 2, 3, 4),
    "_native_batch_norm_legit": _normalised(1, 2, 3, 4),
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    **dict.fromkeys(("mean", "sum", "amax", "amin", "var", "logsumexp"), _reduced),
    **dict.fromkeys(("cumsum", "cumprod"), _cumulative),
    "embedding": _embedding,
    "copy": _two,
    "_prelu_kernel": _two,
}
