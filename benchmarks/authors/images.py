"""Images of the size that some programs' own networks take, made of the bundled digits."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedscope.data.sets.builtin import load_digits

COUNT = 140


def side32() -> dict[str, tuple[Tensor, Tensor]]:
    """Return 130 training and 10 test images (3, 32, 32)."""
    digits = load_digits().train
    gray = digits.images[:COUNT].double() / 255 - 0.5
    tints = torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64).view(1, 3, 1, 1)
    images = (interpolate(gray, size=(32, 32)) * tints).float()
    labels = digits.labels[:COUNT].long()
    return {"train": (images[:-10], labels[:-10]), "test": (images[-10:], labels[-10:])}
