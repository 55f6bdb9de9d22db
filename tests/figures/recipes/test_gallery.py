"""The gallery's files on the disk."""

import json
from pathlib import Path

from fedscope.figures.recipes.gallery import index, write

GALLERY = Path(__file__).parents[3] / "figures"


def test_pages_of_an_earlier_drawing_are_gone(tmp_path: Path) -> None:
    record = json.loads((GALLERY / "man" / "figure2-cpu.json").read_text(encoding="utf-8"))
    record["recipe"] = "figure2"
    for name in ("figure2-cpu-1.png", "figure2-cpu-2.pdf", "figure2-smoke-1.png"):
        (tmp_path / name).write_bytes(b"")
    written = write(record, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["figure2-smoke-1.png", *(path.name for path in written)]
    )
    assert "figure2-cpu-1.png" not in index(tmp_path)
