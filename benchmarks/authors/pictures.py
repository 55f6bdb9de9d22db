"""Images of the sizes that some programs' own networks take, made of the bundled digits."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedscope.data.sets.builtin import load_digits

COUNT = 140


def side32() -> dict[str, tuple[Tensor, Tensor]]:
    """Return 130 training and 10 test images (3, 32, 32)."""
    return _of_side(32)


def side8() -> dict[str, tuple[Tensor, Tensor]]:
    """Return the same images at (3, 8, 8)."""
    return _of_side(8)


def _of_side(side: int) -> dict[str, tuple[Tensor, Tensor]]:
    digits, rows = load_digits().train, torch.arange(COUNT)
    gray = torch.as_tensor(digits.images[rows]).double() / 255 - 0.5
    tints = torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64).view(1, 3, 1, 1)
    images = (interpolate(gray, size=(side, side)) * tints).float()
    labels = digits.labels[rows].long()
    return {"train": (images[:-10], labels[:-10]), "test": (images[-10:], labels[-10:])}
