"""From stored uint8 images to the network's input: one vectorised pass per batch, on the images' device.

A pipeline is normalisation plus random flip and crop. Crop and flip are one gather from the padded batch, so
an image that is neither cropped nor flipped is exactly the test-time image.
"""

from dataclasses import dataclass
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
        mean, std = (torch.tensor(c, device=images.device).view(1, -1, 1, 1) for c in (self.mean, self.std))
        return (images.float().div_(255) - mean) / std

    def train(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return normalised float32 images, each cropped and flipped by its own draw from ``generator``.

        Draws come from the generator's own device (the CPU), so that every device sees the same crops.
        """
        if not self.flip and not self.crop:
            return self.test(images)
        if self.padding_value == "black":
            return self.test(self._crop_and_flip(images, generator))
        return self._crop_and_flip(self.test(images), generator)

    def _crop_and_flip(self, images: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = images.shape
        coins = torch.rand(2, batch, generator=generator)
        offsets = torch.randint(0, 2 * self.padding + 1, (2, batch), generator=generator)
        offsets = torch.where(coins[0] < self.crop, offsets, self.padding)
        columns = torch.arange(width).expand(batch, width)
        columns = torch.where((coins[1] < self.flip)[:, None], width - 1 - columns, columns)
        columns = (columns + offsets[1][:, None]).to(images.device)
        rows = (torch.arange(height) + offsets[0][:, None]).to(images.device)
        padded = pad(images, [self.padding] * 4).permute(0, 2, 3, 1)
        sample = torch.arange(batch, device=images.device)[:, None, None]
        return padded[sample, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
