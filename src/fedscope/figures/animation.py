"""Films of figures: a GIF that any viewer loops.

Frames are separate figures with one palette, which matplotlib's writers, made for one figure, do not support.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from fedscope.figures.style import paper_style
from fedscope.storage import atomic_file

DPI = 160
COLORS = 255
LAST = 4  # times as long for the last one, before the film begins again

Pixels = NDArray[np.uint8]  # (height, width, 3)


def save_film(figures: Sequence[Figure], path: Path, *, record: Mapping[str, Any], seconds: float) -> None:
    """Write a film that loops, atomically, each frame seen for ``seconds`` and the last one longer.

    ``record`` (the film's origin, plain JSON data) is embedded as the file's comment. The same figures and
    record give the same bytes.
    """
    if not figures:
        raise ValueError("a film needs a figure")
    text = json.dumps(record, sort_keys=True, allow_nan=False)
    pictures = [_pixels(figure) for figure in figures]
    if len({picture.shape for picture in pictures}) > 1:
        raise ValueError("the frames of a film have one size")
    # one palette for all frames: colours that flicker would look like a change of the loss
    chosen = [pictures[i] for i in sorted({0, len(pictures) // 2, len(pictures) - 1})]
    palette = Image.fromarray(np.concatenate(chosen)).quantize(
        COLORS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    )
    palette.putpalette([*(palette.getpalette() or [])[: 3 * COLORS], 255, 255, 255])
    images = [_indexed(picture, palette) for picture in pictures]
    each = round(1000 * seconds)
    durations = [each] * (len(images) - 1) + [LAST * each]
    with atomic_file(path, below=None) as handle:
        images[0].save(
            handle, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0,
            comment=text.encode(),
        )  # fmt: skip


def _pixels(figure: Figure) -> Pixels:
    with paper_style():
        figure.set_dpi(DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
    return np.asarray(canvas.buffer_rgba(), dtype=np.uint8)[..., :3].copy()  # type: ignore[no-untyped-call]


def _indexed(picture: Pixels, palette: Image.Image) -> Image.Image:
    """Return the picture in the palette's colours, whose last is the white of the page and kept as such."""
    image = Image.fromarray(picture).quantize(palette=palette, dither=Image.Dither.NONE)
    # the search for the nearest colour is coarse: it takes a light grey for white
    image.paste(COLORS, mask=Image.fromarray((picture == 255).all(axis=-1)))
    return image
