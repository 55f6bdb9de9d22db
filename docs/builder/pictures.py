"""The pictures of the pages, made anew by the pages' own code: ``make pictures``.

They are committed, in 256 colours, so that a page shows them where nothing was run.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from builder.blocks import Block
from builder.running import pictures, script, units

DOCS = Path(__file__).parents[1]
FOLDER = DOCS / "pictures"
COLORS = 256


def make(page: Sequence[Block]) -> list[str]:
    """Run pages and keep the pictures that they show; returns their names."""
    names = pictures(page, DOCS)
    if not names:
        return []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = script(page, folder)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run(["bash", "-c", lines], cwd=folder, check=True, env={**os.environ, "PATH": path})
        for picture in names:
            small(folder / picture, FOLDER / picture)
    return names


def small(source: Path, target: Path) -> None:
    """Write a picture in few colours and at most 1,100 pixels wide."""
    with Image.open(source) as found:
        image = found.convert("RGB")
        image.thumbnail((1100, 1100), Image.Resampling.LANCZOS)
        target.parent.mkdir(exist_ok=True)
        image.quantize(COLORS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    for unit in units(DOCS).values():
        for made in make(unit):
            print(f"{FOLDER.name}/{made}")
