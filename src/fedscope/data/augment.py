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
        return images.float().div_(255).sub_(mean).div_(std)

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
        border = [self.padding] * 4
        if self.padding_value == "black":
            return _crop_and_flip(self.test(pad(images, border)), draws, images.shape[2:])
        return _crop_and_flip(pad(self.test(images), border), draws, images.shape[2:])


def _crop_and_flip(padded: Tensor, draws: Tensor, size: torch.Size) -> Tensor:
    """Cut a window of ``size`` out of every padded image; one gather of pixels, channels-last."""
    (height, width), device = size, padded.device
    top, left, flipped = draws[:, :, None]
    rows = top + torch.arange(height, device=device)
    columns = torch.arange(width, device=device)
    columns = left + torch.where(flipped > 0, width - 1 - columns, columns)
    count, channels, padded_height, padded_width = padded.shape
    rows = rows + padded_height * torch.arange(count, device=device)[:, None]
    places = rows[:, :, None] * padded_width + columns[:, None, :]
    pixels = padded.permute(0, 2, 3, 1).reshape(-1, channels).index_select(0, places.flatten())
    return pixels.view(count, height, width, channels).permute(0, 3, 1, 2)


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, -1, 1, 1)
