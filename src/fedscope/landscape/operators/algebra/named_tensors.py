"""A flat vector as tensors by name, such as a step in weight space by parameter, and back."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedscope.errors import UserError, suggestion

Blocks = tuple[tuple[str, int], ...]
"""Names and lengths of consecutive stretches of coordinates, in order; the lengths sum to n."""


def unflattened(vector: Tensor, blocks: Blocks, shapes: Sequence[torch.Size]) -> dict[str, Tensor]:
    lengths = [length for _, length in blocks]
    if vector.shape != (sum(lengths),):
        raise UserError(f"the vector has shape {tuple(vector.shape)}; expected ({sum(lengths)},)")
    pieces = zip(blocks, vector.split(lengths), shapes, strict=True)
    return {name: piece.view(shape) for (name, _), piece, shape in pieces}


def flattened(tensors: Mapping[str, Tensor], blocks: Blocks, shapes: Sequence[torch.Size]) -> Tensor:
    names = [name for name, _ in blocks]
    for name in tensors:
        if name not in names:
            raise UserError(f"the operator has no tensor {name!r}{suggestion(name, names)}")
    for name, shape in zip(names, shapes, strict=True):
        if name not in tensors:
            raise UserError(
                f"the tensor {name!r} is missing; give all {len(names)}, zeros where none is meant"
            )
        if tensors[name].shape != shape:
            raise UserError(f"{name!r} has shape {tuple(tensors[name].shape)}; expected {tuple(shape)}")
    return torch.cat([tensors[name].reshape(-1) for name in names])
