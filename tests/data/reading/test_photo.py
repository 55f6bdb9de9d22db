"""What photographs get, against Pillow and against closed forms."""

from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

from fedscope.data.augment import Pipeline
from fedscope.data.reading.decoding import AREA, RATIO, TRIES, centred, random_box
from fedscope.data.reading.photo import ORDERS, Photo, rotated
from tests.data.layouts import encoded

UNIT = (0.0,) * 3, (1.0,) * 3


def smooth(size: int = 33) -> Tensor:
    """An image (1, 3, size, size) whose pixels all differ."""
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    return torch.stack([y, x, (x + y) / 2])[None]


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray((image[0] * 255).round().byte().permute(1, 2, 0).numpy())


def tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None] / 255


@pytest.mark.parametrize("degrees", [-30.0, -7.0, 0.0, 12.0, 90.0])
def test_rotation_is_pillows(degrees: float) -> None:
    ours = rotated(smooth(), torch.tensor([degrees]))
    theirs = tensor(pillow(smooth()).rotate(degrees, Image.Resampling.NEAREST))
    assert (
        (ours - theirs).abs().amax(1) > 0.01
    ).double().mean() < 0.02  # ties at the border may fall otherwise


@pytest.mark.parametrize("order", range(6))
def test_jitter_is_pillows_in_every_order(order: int) -> None:
    enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    numbers, image = [0.9, 0.2, 0.7], pillow(smooth())
    for kind in ORDERS[order].tolist():
        image = enhance[kind](image).enhance(1 + (2 * numbers[kind] - 1) * 0.4)
    draws = torch.tensor([0.9, 0.5, *numbers, (order + 0.5) / 6])[:, None]
    ours = Photo(jitter=0.4)(tensor(pillow(smooth())), draws)
    assert (ours - tensor(image)).abs().max() < 4 / 255  # Pillow rounds after each


def test_a_pipeline_flips_and_turns_as_often_and_as_far_as_it_says() -> None:
    pipeline = Pipeline(*UNIT, photo=Photo(flip=0.5, rotation=30))
    draws = pipeline.draw(4000, torch.Generator().manual_seed(0))
    assert draws.shape == (6, 4000)
    store = (smooth(9) * 255).byte().expand(4000, -1, -1, -1)
    draws[1] = 0.5  # not turned
    out = pipeline.train(store, torch.arange(4000), draws)
    plain = pipeline.test(store[:1])
    flipped = torch.tensor([torch.equal(image, plain[0].flip(2)) for image in out])
    assert flipped.double().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)
    assert torch.equal(out[~flipped], plain.expand(int((~flipped).sum()), -1, -1, -1))
    draws = torch.tensor([0.9, 1.0, 0, 0, 0, 0])[:, None]
    turned = pipeline.train(store, torch.tensor([0]), draws)
    assert torch.equal(turned, rotated(plain, torch.tensor([30.0])))


def test_jitters_are_spread_over_all_orders_and_the_whole_range() -> None:
    draws = Photo(jitter=0.4).draw(6000, torch.Generator().manual_seed(0))
    orders = (draws[5] * 6).long().bincount(minlength=6)
    assert orders.min() > 1000 - 5 * 1000**0.5
    grey = torch.full((6000, 3, 1, 1), 0.5)
    out = Photo(jitter=0.4)(grey, draws)[:, 0, 0, 0]  # of grey, brightness alone changes anything
    assert torch.allclose(out, 0.5 * (1 + (2 * draws[2] - 1) * 0.4), atol=1e-6)
    assert out.min() < 0.302
    assert out.max() > 0.698


def test_a_random_box_is_the_first_try_that_fits() -> None:
    """The published rule, spelled out."""
    generator = np.random.default_rng(0)
    for height, width in [(60, 80), (300, 80), (500, 375), (8, 8)]:
        for _ in range(50):
            u = generator.random((TRIES, 4))
            box = random_box(height, width, u.astype(np.float32).ravel())
            u = u.astype(np.float32).astype(float)
            for area, ratio, top, left in u:
                target = height * width * (AREA[0] + area * (AREA[1] - AREA[0]))
                aspect = np.exp(np.log(RATIO[0]) + ratio * (np.log(RATIO[1]) - np.log(RATIO[0])))
                w, h = round(np.sqrt(target * aspect)), round(np.sqrt(target / aspect))
                if 0 < w <= width and 0 < h <= height:
                    assert box == (int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)
                    break
            else:
                assert box[2] == height or box[3] == width
            assert 0 <= box.top <= height - box.height
            assert 0 <= box.left <= width - box.width


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [
        (300, 60, (110, 0, 80, 60)),
        (60, 300, (0, 110, 60, 80)),
        (64, 64, (0, 0, 64, 64)),
        (70, 60, (0, 0, 70, 60)),
    ],
)
def test_where_no_try_fits_the_largest_centred_box_is_taken(
    height: int, width: int, box: tuple[int, int, int, int]
) -> None:
    nothing_fits = np.tile(np.array([1.0, 1.0, 0, 0], dtype=np.float32), TRIES)
    if height == width or (height, width) == (70, 60):
        nothing_fits = np.tile(np.array([1.0, 0.0, 0, 0], dtype=np.float32), TRIES)
    assert random_box(height, width, nothing_fits) == box


def test_the_centre_of_a_wide_image() -> None:
    """512×256 is halved, since 128 is 256/224 of 112, and of its 256 columns 72 to 184 are kept."""
    image = np.zeros((256, 512, 3), dtype=np.uint8)
    image[:, :256] = 255
    buffer = BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    out = centred(buffer.getvalue(), "here", 112)
    assert out.shape == (3, 112, 112)
    assert (out[:, :, :55] == 255).all()
    assert (out[:, :, 57:] == 0).all()
    assert centred(encoded(0, 0, (40, 30)), "here", 28).shape == (3, 28, 28)
