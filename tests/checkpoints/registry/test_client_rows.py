import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from fedscope.checkpoints.file.schema import MOST_ROWS, RowsSpec
from fedscope.checkpoints.registry.client_rows import ClientRows, packed, read_rows, rows_trained_on
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from tests.checkpoints.cases import manifest

ROWS = ClientRows([np.array([5, 3, 70_000]), np.array([], int), np.array([1])], np.array([2, 9]))
OTHER = ClientRows([np.array([5, 3]), np.array([70_000]), np.array([1])], np.array([2, 9]))


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "rows.zz"
    path.write_bytes(content)
    return path


def _lists(rows: ClientRows) -> list[list[int]]:
    return [held.tolist() for held in (*rows.clients, rows.validation)]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = read_rows(_written(tmp_path, packed(ROWS)), ROWS.spec, 70_001)
    assert _lists(found) == [[5, 3, 70_000], [], [1], [2, 9]]
    assert (ROWS.spec.counts, ROWS.spec.validation) == ((3, 0, 1), 2)
    assert zlib.decompress(packed(ROWS)) == np.array([5, 3, 70_000, 1, 2, 9], "<u4").tobytes()


def test_the_hash_tells_whose_rows_they_are() -> None:
    assert ROWS.content == OTHER.content
    assert ROWS.spec.sha256 != OTHER.spec.sha256


@pytest.mark.parametrize(
    "content",
    [
        lambda: b"",
        lambda: b"no zlib",
        lambda: packed(ROWS)[:-1],
        lambda: packed(ROWS) + b"more",
        lambda: zlib.compress(ROWS.content[:-4]),
        lambda: zlib.compress(ROWS.content + bytes(4)),
        lambda: zlib.compress(ROWS.content[:-4] + bytes(4)),
        lambda: zlib.compress(bytes(1 << 28), 1),
    ],
    ids=["empty", "other", "cut", "longer", "fewer", "more", "changed", "bomb"],
)
def test_what_is_not_the_runs_rows_is_damaged(tmp_path: Path, content: Callable[[], bytes]) -> None:
    with pytest.raises(UserError, match=r"damaged|more than"):
        read_rows(_written(tmp_path, content()), ROWS.spec)


def test_a_row_beyond_the_training_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="row 70000"):
        read_rows(_written(tmp_path, packed(ROWS)), ROWS.spec, 70_000)


def test_no_manifest_asks_for_more_memory_than_any_run_needs() -> None:
    with pytest.raises(ValidationError, match="more than"):
        RowsSpec(sha256="0" * 64, counts=(MOST_ROWS, 1))


def _held(run: RunFolder | None, sha256: str, drawn: ClientRows) -> list[list[int]]:
    found = rows_trained_on(run, sha256, lambda: drawn, round=1, size=70_001, versions={"numpy": "1.2.3"})
    return _lists(found)


def test_stored_rows_come_before_drawn_ones(tmp_path: Path) -> None:
    spec = ROWS.spec
    run = RunRegistry(tmp_path).create(manifest("a").model_copy(update={"rows": spec}), packed(ROWS))
    assert run.manifest().rows == spec
    assert _held(run, spec.sha256, OTHER) == _lists(ROWS)
    assert _held(None, spec.sha256, ROWS) == _lists(ROWS)
    assert _held(None, "", OTHER) == _lists(OTHER)  # of a run that stored none
    with pytest.raises(UserError, match="in training"):
        _held(None, spec.sha256, OTHER)
    with pytest.raises(UserError, match="in training"):  # of another run than the one it lies in
        _held(run, "1" * 64, OTHER)
    run.rows().write_bytes(packed(OTHER)[:-1])
    with pytest.raises(UserError, match="damaged"):
        _held(run, spec.sha256, ROWS)
