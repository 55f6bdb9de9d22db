from pathlib import Path

import pytest

from fedscope.storage import atomic_file, atomic_folder, write_text


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "old")
    with pytest.raises(OSError, match="disk full"), atomic_file(tmp_path / "a.json") as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert (tmp_path / "a.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_write_replaces(tmp_path: Path) -> None:
    write_text(tmp_path / "deep" / "a.json", "old")
    write_text(tmp_path / "deep" / "a.json", "ζ")
    assert (tmp_path / "deep" / "a.json").read_text(encoding="utf-8") == "ζ"


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_folder(tmp_path / "cache") as temporary:
        (temporary / "x").write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_writers_of_a_folder_wins(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "cache") as slow:
        (slow / "x").write_text("slow")
        with atomic_folder(tmp_path / "cache") as fast:
            (fast / "x").write_text("fast")
    assert (tmp_path / "cache" / "x").read_text() == "fast"
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]
