"""Rows on disk: read as they were written, whatever happened to the file."""

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.landscape.surfaces.evaluator import Row
from fedscope.landscape.surfaces.point_cache import PointFile
from tests import tiers


def _file(path: Path | None) -> PointFile:
    return PointFile(path)


def _rows() -> dict[Row, Row]:
    return {(float(i), 0.1 * i): (math.exp(i), -math.inf if i % 2 else 0.5) for i in range(5)}


def _written(path: Path) -> dict[Row, Row]:
    rows = _rows()
    for point, row in rows.items():
        _file(path).add(point, row)
    return rows


def _bits(row: Row) -> bytes:
    return struct.pack(f"<{len(row)}d", *row)


def test_rows_are_found_with_their_bits(tmp_path: Path) -> None:
    file = _file(tmp_path / "a" / "b.rows")
    assert file.read() == {}
    file.add((0.1, -2.0), (math.nan, 1 / 3))
    file.add((0.1, -2.5), (math.inf, -0.0))
    found = _file(tmp_path / "a" / "b.rows").read()
    assert {point: _bits(row) for point, row in found.items()} == {
        (0.1, -2.0): _bits((math.nan, 1 / 3)),
        (0.1, -2.5): _bits((math.inf, -0.0)),
    }


@settings(max_examples=tiers.examples(), deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_costs_one_row(
    tmp_path_factory: pytest.TempPathFactory, share: float, flip: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a"
    rows = _written(path)
    content = bytearray(path.read_bytes())
    place = int(share * len(content))
    content[place] ^= flip
    path.write_bytes(content)
    found = _file(path).read()
    lost = [point for point in rows if point not in found]
    assert len(lost) == 1
    assert found == {point: row for point, row in rows.items() if point not in lost}


@settings(max_examples=tiers.examples(), deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_short_goes_on_after_its_end(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a"
    rows, ends = dict[Row, Row](), list[int]()
    for point, row in _rows().items():
        _file(path).add(point, row)
        rows[point] = row
        ends.append(path.stat().st_size - 1)  # without the end of its line
    cut = int(share * path.stat().st_size)
    path.write_bytes(path.read_bytes()[:cut])
    _file(path).add((9.0, 9.0), (1.0, 2.0))
    kept = dict(list(rows.items())[: sum(end <= cut for end in ends)])
    assert _file(path).read() == {**kept, (9.0, 9.0): (1.0, 2.0)}


def test_where_nothing_can_be_written_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedscope.landscape.surfaces.point_cache.append", full)
    for path in (tmp_path / "a", None):
        file = _file(path)
        file.add((0.0, 0.0), (1.0, 1.0))
        assert file.read() == {}
