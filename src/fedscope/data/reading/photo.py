"""Augmentation of photographs, a batch at a time: random resized crop, colour jitter, flip, rotation."""

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedscope.data.reading.decoding import UNIFORMS

GREY = (0.299, 0.587, 0.114)  # ITU-R 601 luma, as Pillow's conversion to grey
ORDERS = torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
FLIP, ANGLE, BRIGHTNESS, ORDER = 0, 1, 2, 5  # rows of the draws; contrast and saturation are 3 and 4
ROWS = 6


@dataclass(frozen=True)
class Photo:
    """Augmentation of images on the 0…1 scale, by numbers in 0…1 of which each image has a column.

    ``rotation`` is in degrees to either side, nearest pixel, black outside; ``jitter`` is the greatest
    relative change of brightness, contrast and saturation, applied in random order and each clipped to 0…1.
    A resized crop is taken when the image is fetched from its file, because only there all of it is at hand.
    """

    flip: float = 0.0  # probability
    rotation: float = 0.0
    jitter: float = 0.0
    resized_crop: bool = False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return float32 in 0…1: (6, count), or (46, count) with a resized crop."""
        return torch.rand(ROWS + UNIFORMS * self.resized_crop, count, generator=generator)

    def crops(self, draws: Tensor) -> Tensor | None:
        """Return the rows of ``draws`` that decide the resized crop, (40, B), if there is one."""
        return draws[ROWS:] if self.resized_crop else None

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Return images (B, 3, H, W) as ``draws`` change them."""
        if self.jitter:
            images = self._jittered(images, draws)
        flipped = (draws[FLIP] < self.flip)[:, None, None, None]
        images = torch.where(flipped, images.flip(3), images)
        return rotated(images, (2 * draws[ANGLE] - 1) * self.rotation) if self.rotation else images

    def _jittered(self, images: Tensor, draws: Tensor) -> Tensor:
        factors = 1 + (2 * draws[BRIGHTNESS:ORDER] - 1) * self.jitter  # (3, B)
        orders = ORDERS.to(draws.device)[(draws[ORDER] * len(ORDERS)).long()]  # (B, 3)
        weights = images.new_tensor(GREY)[:, None, None]
        for which in orders.T:
            grey = (images * weights).sum(1, keepdim=True)
            kind = which[:, None, None, None]
            # Brightness blends with black, contrast with the mean grey, saturation with each pixel's grey.
            other = torch.where(kind == 0, 0.0, torch.where(kind == 1, grey.mean((2, 3), keepdim=True), grey))
            factor = factors.gather(0, which[None])[0][:, None, None, None]
            images = torch.lerp(other, images, factor).clamp(0, 1)
        return images


def rotated(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn each image (B, C, H, W) about its centre, counter-clockwise, by its angle (B,)."""
    angles = degrees * (pi / 180)
    cos, sin, zero = angles.cos(), angles.sin(), torch.zeros_like(angles)
    ratio = images.shape[2] / images.shape[3]  # grids run over -1…1 along each side, whatever its length
    inverse = torch.stack([cos, -sin * ratio, zero, sin / ratio, cos, zero], 1).view(-1, 2, 3)
    grid = affine_grid(inverse, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)
