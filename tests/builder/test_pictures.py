"""Pictures of pages: how far the few colours that are kept are from those that were drawn."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from builder import pictures


def _error(folder: Path, colors: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the mean distance of a channel, of 255, on smooth shades as a surface has them."""
    x, y = np.meshgrid(np.linspace(0, 1, 300), np.linspace(0, 1, 300))
    shades = np.stack([x, y, 0.5 + 0.5 * np.sin(5 * x * y)], axis=-1)
    drawn = (255 * shades).astype("uint8")
    Image.fromarray(drawn).save(folder / "drawn.png")
    monkeypatch.setattr(pictures, "COLORS", colors)
    pictures.small(folder / "drawn.png", folder / "kept" / "small.png")
    with Image.open(folder / "kept" / "small.png") as kept:
        return float(np.abs(np.asarray(kept.convert("RGB"), float) - drawn).mean())


def test_shades_stay_smooth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _error(tmp_path, pictures.COLORS, monkeypatch) < 5 < _error(tmp_path, 64, monkeypatch)
