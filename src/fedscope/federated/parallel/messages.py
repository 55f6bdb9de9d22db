"""Tensors of any kinds as one message: a round of small clients costs a worker as many waits as messages."""

from collections.abc import Sequence

import torch
from torch import Tensor


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """Return the bytes (n,) uint8 of the tensors, on the CPU, one after the other."""
    return torch.cat([_bytes(tensor.detach().cpu().contiguous()) for tensor in tensors])


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous tensor; of one number PyTorch may have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def unpack(message: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy the bytes of a message of :func:`packed` into tensors of the same shapes and kinds."""
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    for tensor, piece in zip(tensors, message.split(sizes), strict=True):
        # a piece may begin where numbers of its kind may not
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))


def size(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of their message."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
