"""From an encoded image to uint8 pixels. Imports no torch: the processes that decode start quickly."""

from io import BytesIO
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedscope.errors import UserError

Pixels = NDArray[np.uint8]
TRIES = 10  # of a random resized crop
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
UNIFORMS = 4 * TRIES  # numbers in 0…1 that a crop is made of
TEST_SCALE = 256 / 224  # a test image's shorter side before the centre crop, in units of the crop's side


class Box(NamedTuple):
    """A rectangle of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def opened(encoded: bytes, where: str, *, grey: bool = False) -> Image.Image:
    """Return the image, decoded; ``grey``: without three channels it is made grey first (FedBN's loaders)."""
    try:
        image: Image.Image = Image.open(BytesIO(encoded))
        if grey and len(image.getbands()) != 3:
            image = image.convert("L")
        return image.convert("RGB")
    except Exception as error:  # Pillow's decoders share no base class
        raise UserError(f"cannot decode {where}: {first_line(error)}; fetch it again") from error


def check_header(encoded: bytes, where: str) -> None:
    """Read an image's format and size, and nothing else."""
    try:
        Image.open(BytesIO(encoded))
    except Exception as error:  # as above
        raise UserError(f"cannot decode {where}: {first_line(error)}; fetch it again") from error


def exact(encoded: bytes, where: str, side: int) -> Pixels:
    """Return the image as (3, side, side)."""
    image = opened(encoded, where)
    if image.size != (side, side):
        raise UserError(
            f"{where} is {image.width}×{image.height}, expected {side}×{side}; use the original files"
        )
    return _pixels(image)


def squared(encoded: bytes, where: str, side: int) -> Pixels:
    """Return the image scaled to (3, side, side), bilinearly and with antialiasing."""
    image = opened(encoded, where, grey=True)
    return _pixels(image.resize((side, side), Image.Resampling.BILINEAR))


def cropped(encoded: bytes, where: str, side: int, uniforms: NDArray[np.float32]) -> Pixels:
    """Return the random crop that ``uniforms`` (40,) decide, scaled to (3, side, side)."""
    image = opened(encoded, where)
    top, left, height, width = random_box(image.height, image.width, uniforms)
    image = image.crop((left, top, left + width, top + height))
    return _pixels(image.resize((side, side), Image.Resampling.BILINEAR))


def centred(encoded: bytes, where: str, side: int) -> Pixels:
    """Return the centre of the image, (3, side, side), after its shorter side was scaled to 256/224 of it."""
    image = opened(encoded, where)
    shorter, goal = min(image.size), round(side * TEST_SCALE)
    # The longer side is cut down to whole pixels, and an odd margin is halved by rounding to even.
    size = tuple(goal if edge == shorter else int(goal * edge / shorter) for edge in image.size)
    image = image.resize((size[0], size[1]), Image.Resampling.BILINEAR)
    left, top = (round((edge - side) / 2) for edge in image.size)
    return _pixels(image.crop((left, top, left + side, top + side)))


def random_box(height: int, width: int, uniforms: NDArray[np.float32]) -> Box:
    """Return the box of a random resized crop from numbers in 0…1, four per try: area, ratio, top, left.

    The area is uniform over 0.08…1 of the image's, the logarithm of width/height over ±log 4/3. The first of
    ten tries that fits is taken; if none does, the largest centred box with a ratio in that range (Szegedy et
    al. 2015, as torch's image transforms have it).
    """
    for area, ratio, top, left in uniforms.reshape(TRIES, 4).tolist():
        pixels = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
        aspect = exp(log(RATIO[0]) + (log(RATIO[1]) - log(RATIO[0])) * ratio)
        w, h = round(sqrt(pixels * aspect)), round(sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            return Box(int(top * (height - h + 1)), int(left * (width - w + 1)), h, w)
    w = min(width, max(1, round(height * RATIO[1])))
    h = min(height, max(1, round(width / RATIO[0])))
    return Box((height - h) // 2, (width - w) // 2, h, w)


def _pixels(image: Image.Image) -> Pixels:
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
