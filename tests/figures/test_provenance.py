import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.embedded_record import made_from, read_record
from fedscope.figures.style import save
from fedscope.records.landscape_record import LandscapeRecord

RECORD = {
    "schema": "fedscope/landscape/1",
    "checkpoint": {"sha256": "ab" * 32, "run": "x", "path": r"a (b)\c & <d> 'ζ' → ₂"},
    "problem": {"samples": 1, "seed": 0},
    "axes": [{"name": "a", "values": [0.0]}] * 2,
    "loss": [[1.0]],
    "directions": "eigen",
    "center_loss": 1.0,
    "versions": {"fedscope": "0"},
}


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_figure_tells_what_made_it(tmp_path: Path, kind: str) -> None:
    figure = Figure((1, 1))
    figure.subplots().set_title("title (a)")
    record = made_from([LandscapeRecord.read(RECORD)] * 2)
    save(figure, tmp_path / f"a.{kind}", record=record)
    assert read_record(tmp_path / f"a.{kind}") == record
    assert "loss" not in record["analyses"][0]
    assert record["checkpoints"] == ["ab" * 32] * 2


def test_an_analysis_is_its_own_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(RECORD))
    assert read_record(tmp_path / "a.json") == RECORD


@pytest.mark.parametrize("kind", ["png", "pdf", "svg", "json", "txt"])
@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n\xff\xff\xff\xfftEXtDescription\0", b"x" * 100])
def test_other_files_hold_no_record(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / f"a.{kind}").write_bytes(content)
    with pytest.raises(UserError, match="no record"):
        read_record(tmp_path / f"a.{kind}")


def test_a_foreign_figure_has_none(tmp_path: Path) -> None:
    for kind in ("png", "pdf", "svg"):
        Figure((1, 1)).savefig(tmp_path / f"a.{kind}")
        with pytest.raises(UserError, match="no record"):
            read_record(tmp_path / f"a.{kind}")


LONG = 300_000


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("svg", b"<dc:description>" * LONG),
        ("html", b'<script type="application/json" id="page-provenance">' * LONG),
        ("pdf", b"/Subject (" * LONG),
        ("pdf", b"/Subject (" + b"\\)" * LONG),
        ("gif", b"GIF89a" + bytes(7) + b"\x21\xfe" + b"\x01x" * 5 * LONG),
        ("png", b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0tEXt\0\0\0\0" * LONG),
        ("json", b"[" * LONG),
    ],
)
def test_a_long_file_without_a_record_is_read_once(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / f"a.{kind}").write_bytes(content)
    with pytest.raises(UserError, match="holds no record"):
        read_record(tmp_path / f"a.{kind}")
