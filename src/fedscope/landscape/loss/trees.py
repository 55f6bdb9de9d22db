"""Batches of any shape: one tensor, or tuples, lists and dicts of tensors that share their first dimension.

A model gets them as a Python function gets arguments: one tensor as it is, a tuple or list as several, a
dict by name.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor

from fedscope.errors import UserError

_LINE = 64  # bytes of a line of the processor's cache

Tree = Any
"""A tensor, or a tuple, list or dict of trees; its tensors' first dimension counts samples."""


def leaves(tree: Tree) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from leaves(item)
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from leaves(item)
    else:
        raise UserError(
            f"a batch holds tensors, and tuples, lists and dicts of them, not {type(tree).__name__}"
        )


def mapped(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """Return the tree of the function's values, tuples and lists as tuples, mappings as dicts."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: mapped(function, item) for name, item in tree.items()}
    return tuple(mapped(function, item) for item in tree)


def cloned(tree: Tree) -> Tree:
    """Return the tree with copies of its tensors, for functions that may write to them.

    A copy begins at the same place of a line of memory: where it does not, kernels round otherwise.
    """
    return mapped(_cloned, tree)


def _cloned(tensor: Tensor) -> Tensor:
    if not (tensor.is_contiguous() and tensor.numel()):
        return tensor.clone()
    room = tensor.new_empty(tensor.numel() + _LINE // tensor.itemsize)
    begin = (tensor.data_ptr() - room.data_ptr()) % _LINE // tensor.itemsize
    return room[begin : begin + tensor.numel()].view(tensor.shape).copy_(tensor)


def count(tree: Tree) -> int:
    shapes = [tuple(tensor.shape) for tensor in leaves(tree)]
    if not shapes or any(not shape for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        raise UserError(
            f"the tensors of a batch must have the same first dimension, the samples, not {shapes[:4]}"
        )
    return shapes[0][0]


def some(tree: Tree, rows: slice | Tensor) -> Tree:
    return mapped(lambda tensor: tensor[rows], tree)


def split(tree: Tree, size: int) -> list[Tree]:
    return [some(tree, slice(at, at + size)) for at in range(0, count(tree), size)]


def slices(samples: int, most: int) -> list[slice]:
    rows = torch.arange(samples).tensor_split(math.ceil(samples / most))
    return [slice(int(part[0]), int(part[-1]) + 1) for part in rows]


def cut(tree: Tree, most: int) -> list[Tree]:
    return [some(tree, rows) for rows in slices(count(tree), most)]


def joined(trees: list[Tree]) -> Tree:
    first = trees[0]
    try:
        if isinstance(first, Tensor):
            return torch.cat(trees)
        if isinstance(first, Mapping):
            if any(set(tree) != set(first) for tree in trees):
                raise UserError(
                    f"the batches have different entries; every one needs {', '.join(map(str, first))}"
                )
            return {name: joined([tree[name] for tree in trees]) for name in first}
        return tuple(joined(list(items)) for items in zip(*trees, strict=True))
    except (RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"the batches do not fit together ({error}); pad them to one shape") from error


def flat(outputs: object) -> Tensor:
    """Return a model's output; where it is no tensor, the numbers of all tensors in it as one vector."""
    if isinstance(outputs, Tensor):
        return outputs
    parts = [tensor.reshape(-1) for tensor in within(outputs) if tensor.is_floating_point()]
    return torch.cat([part.to(parts[0].dtype) for part in parts]) if parts else torch.empty(0)


def within(outputs: object) -> Iterator[Tensor]:
    """Yield the tensors in tuples, lists, mappings and dataclasses, whatever else is in them."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        yield from within(list(outputs.values()))
    elif isinstance(outputs, tuple | list):
        for item in outputs:
            yield from within(item)
    elif is_dataclass(outputs) and not isinstance(outputs, type):
        yield from within(list(vars(outputs).values()))


def octets(tensor: Tensor) -> bytes:
    """Return the numbers of a tensor of any dtype, also one that NumPy lacks, as they lie in memory."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def arguments(inputs: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def as_pairs(piece: Tensor) -> Tensor:
    """Return a tensor that ``torch.view_as_complex`` takes, if its shape is such."""
    return piece.clone() if piece.shape[-1:] == (2,) and piece.storage_offset() % 2 else piece
