"""From stored uint8 images to the network's input: one vectorised pass per batch, on the images' device.

A pipeline is normalisation plus random flip and crop. Crop and flip are one gather from the padded batch, so
an image that is neither cropped nor flipped is exactly the test-time image.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Pipeline:
    """How a family of papers prepares a data set: constants per channel, on the 0…1 scale."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: float = 0.0  # probability of a horizontal flip
    crop: float = 0.0  # probability of a random crop of the padded image
    padding: int = 0  # pixels on each side
    padding_value: Literal["black", "mean"] = "black"  # pad before, or after, normalisation

    def test(self, images: Tensor) -> Tensor:
        """Return (B, C, H, W) uint8 images as normalised float32."""
        mean, std = _per_channel(self.mean, images.device), _per_channel(self.std, images.device)
        return (images.float().div_(255) - mean) / std

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return (3, count) int64 for ``train``: row and column of the crop, and whether to flip.

        Drawn on the generator's own device (the CPU), so that every device sees the same crops. A pipeline
        without augmentation returns (0, count) and draws nothing.
        """
        if not self.flip and not self.crop:
            return torch.empty(0, count, dtype=torch.int64)
        coins = torch.rand(2, count, generator=generator)
        offsets = torch.randint(0, 2 * self.padding + 1, (2, count), generator=generator)
        offsets = torch.where(coins[0] < self.crop, offsets, self.padding)
        return torch.cat([offsets, (coins[1:] < self.flip).long()])

    def train(self, images: Tensor, draws: Tensor) -> Tensor:
        """Return normalised float32 images, each cropped and flipped by its column of ``draws``."""
        if not len(draws):
            return self.test(images)
        if self.padding_value == "black":
            return self.test(self._crop_and_flip(images, draws))
        return self._crop_and_flip(self.test(images), draws)

    def _crop_and_flip(self, images: Tensor, draws: Tensor) -> Tensor:
        height, width = images.shape[2:]
        top, left, flipped = draws[:, :, None]
        rows = top + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device)
        columns = left + torch.where(flipped > 0, width - 1 - columns, columns)
        padded = pad(images, [self.padding] * 4).permute(0, 2, 3, 1)
        sample = torch.arange(len(images), device=images.device)[:, None, None]
        return padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, -1, 1, 1)
