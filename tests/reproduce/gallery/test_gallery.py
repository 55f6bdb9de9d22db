"""The gallery's files on the disk."""

import json
from pathlib import Path

import pytest

from fedscope.errors import UserError
from fedscope.reproduce.gallery.gallery import index, why_not_overwrite, write

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


DEEP = "[" * 100_000


@pytest.mark.parametrize("content", ["{", DEEP, "[]", '{"schema": "other/1"}', '"\\ud800"', "\x00"])
def test_other_programs_files_do_not_stop_the_index(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "README.md").write_bytes(b"# \xff\xfe a page")
    assert "[b](b/README.md)" in index(tmp_path)


@pytest.mark.parametrize(
    "rest", ["", "}", f', "recipe": {DEEP}', ', "recipe": 1}', ', "recipe": "a", "claims": 0}']
)
def test_a_damaged_artefact_is_named(tmp_path: Path, rest: str) -> None:
    (tmp_path / "a-cpu.json").write_text('{"schema": "fedscope/artefact/1"' + rest)
    with pytest.raises(UserError, match="a-cpu"):
        index(tmp_path)
    assert why_not_overwrite({"recipe": "a", "scale": "cpu", "drawn": [], "entries": []}, tmp_path) is None
