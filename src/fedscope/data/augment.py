"""From stored uint8 images to the network's input: one vectorised pass per batch, on the images' device.

A pipeline is normalisation plus random augmentation: either flip and crop of the padded image, which are one
gather, so that an image that is neither cropped nor flipped is exactly the test-time image; or the changes of
:class:`~fedscope.data.reading.photo.Photo`. Images come from a store: a tensor, or files that are
decoded when they are fetched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from fedscope.data.reading.anew import Anew
from fedscope.data.reading.encoded_images import Files
from fedscope.data.reading.photo import Photo

Store = Tensor | Files | Anew


@dataclass(frozen=True)
class Pipeline:
    """How a family of papers prepares a data set: constants per channel, on the 0…1 scale.

    Without constants inputs are used as they are, of whatever shape.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: float = 0.0  # probability of a horizontal flip
    crop: float = 0.0  # probability of a random crop of the padded image
    padding: int = 0  # pixels on each side
    padding_value: Literal["black", "mean"] = "black"  # pad before, or after, normalisation
    photo: Photo | None = None  # instead of the four above
    side: int | None = None  # pixels that the network gets, where they are not the store's
    anew: bool = False  # inputs are read again from the user's own data set, a seed each

    @property
    def draws(self) -> bool:
        return bool(self.photo or self.flip or self.crop or self.anew)

    def test(self, store: Store, rows: Tensor | None = None) -> Tensor:
        """Return the ``rows`` (B,) of a store (N, C, H, W), or all of it, as normalised float32."""
        if isinstance(store, Files):
            rows = torch.arange(len(store)) if rows is None else rows
            return self._normalised(store.fetch(rows).float().div_(255))
        if isinstance(store, Anew):
            return store.once(rows)
        images = store if rows is None else store[rows]
        return self._normalised(images.float().div_(255)) if self.mean else images

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return (D, count) for ``train``: the random numbers of ``count`` images.

        Of a crop and flip, int64 (3, count): row and column of the crop, and whether to flip. Drawn on the
        generator's own device (the CPU), so that every device sees the same images. A pipeline without
        augmentation returns (0, count) and draws nothing.
        """
        if self.photo:
            return self.photo.draw(count, generator)
        if self.anew:
            return torch.randint(2**62, (1, count), generator=generator)
        if not self.draws:
            return torch.empty(0, count, dtype=torch.int64)
        coins = torch.rand(2, count, generator=generator)
        offsets = torch.randint(0, 2 * self.padding + 1, (2, count), generator=generator)
        offsets = torch.where(coins[0] < self.crop, offsets, self.padding)
        return torch.cat([offsets, (coins[1:] < self.flip).long()])

    def train(self, store: Store, rows: Tensor, draws: Tensor) -> Tensor:
        """Return the ``rows`` (B,) as normalised float32, augmented by their columns of ``draws`` (D, B)."""
        if not len(draws):
            return self.test(store, rows)
        if isinstance(store, Anew):
            return store.fetch(rows, draws[0])[0]
        if self.photo:
            crops = self.photo.crops(draws)
            images = store.fetch(rows, crops) if isinstance(store, Files) else store[rows]
            return self._normalised(self.photo(images.float().div_(255), draws))
        images = store.fetch(rows) if isinstance(store, Files) else store[rows]
        border = [self.padding] * 4
        if self.padding_value == "black":
            return _crop_and_flip(self.test(pad(images, border)), draws, images.shape[2:])
        return _crop_and_flip(pad(self.test(images), border), draws, images.shape[2:])

    def ahead(
        self, store: Store, batches: Sequence[tuple[Tensor, Tensor]]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of (rows (…, B), draws (D, …, B)); files of the next are decoded meanwhile.

        Without draws, that is for ``test``, D is 0.
        """
        for index, batch in enumerate(batches):
            if isinstance(store, Files):
                for rows, draws in batches[index : index + 2]:
                    crops = self.photo.crops(draws.flatten(1)) if self.photo and len(draws) else None
                    store.prefetch(rows.flatten(), crops)
            yield batch

    def _normalised(self, images: Tensor) -> Tensor:
        if self.side is not None:
            images = interpolate(images, (self.side, self.side), mode="bilinear", antialias=True)
        mean, std = _per_channel(self.mean, images.device), _per_channel(self.std, images.device)
        return images.sub_(mean).div_(std)


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


AS_THEY_ARE = Pipeline((), ())


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, -1, 1, 1)
