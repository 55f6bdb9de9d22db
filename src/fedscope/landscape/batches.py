"""The samples behind a curvature operator: fixed, in a fixed order, with their counts."""

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property

import torch
from torch import Tensor

from fedscope.errors import UserError

Batch = tuple[Tensor, Tensor]


class Batches:
    """Pairs (inputs, targets), the same in every pass; the last batch may be smaller.

    An operator needs the same samples in every product, so nothing here shuffles, augments or drops.

    Args:
        inputs: tensor whose first dimension counts samples.
        targets: tensor with the same first dimension.
        batch_size: samples per batch.

    Raises:
        UserError: no samples, differing lengths, or ``batch_size`` < 1.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, batch_size: int = 256) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        _check_pair(inputs, targets)
        self._pairs = tuple(
            zip(torch.split(inputs, batch_size), torch.split(targets, batch_size), strict=True)
        )

    @classmethod
    def from_iterable(cls, loader: Iterable[Batch]) -> "Batches":
        """Run once through ``loader`` (an iterator will do) and keep its batches in the order they came.

        Raises:
            UserError: no batch, an empty batch, or an item that is not a pair of tensors of equal length.
        """
        pairs: list[Batch] = []
        for item in loader:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise UserError(f"a batch must be a pair (inputs, targets), not {type(item).__name__}")
            _check_pair(item[0], item[1])
            pairs.append((item[0], item[1]))
        return cls._of(pairs)

    @classmethod
    def _of(cls, pairs: Iterable[Batch]) -> "Batches":
        batches = cls.__new__(cls)
        batches._pairs = tuple(pairs)
        if not batches._pairs:
            raise UserError("the data has no batches; give at least one sample")
        return batches

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples in each batch."""
        return tuple(len(inputs) for inputs, _ in self._pairs)

    @property
    def samples(self) -> int:
        """Samples in all batches together."""
        return sum(self.sizes)

    @cached_property
    def sha256(self) -> str:
        """Hash of all samples, their order and how they are batched."""
        digest = hashlib.sha256(f"{self.sizes}".encode())
        for tensor in (tensor for pair in self for tensor in pair):
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}\0".encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._pairs)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "Batches":
        """Return the batches on ``device``; floating tensors in ``dtype``, labels as they are."""
        return Batches._of(
            (_moved(inputs, device, dtype), _moved(targets, device, dtype)) for inputs, targets in self
        )


def _moved(tensor: Tensor, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)


def _check_pair(inputs: object, targets: object) -> None:
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor):
        names = f"({type(inputs).__name__}, {type(targets).__name__})"
        raise UserError(f"inputs and targets must be tensors, not {names}")
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        raise UserError(f"inputs and targets must have the same first dimension, not {shapes}")
    if len(inputs) == 0:
        raise UserError("a batch is empty; give at least one sample")
