from pathlib import Path

import pytest

from fedscope.landscape.keeping import Keeper

RECORD = {"lambda_max": {"value": 1.25}, "density": None, "pairs": {"1": [0.5, -3]}}


def test_a_result_is_found_as_it_was_kept(tmp_path: Path) -> None:
    Keeper(tmp_path).finish("a", RECORD)
    assert Keeper(tmp_path).result("a") == RECORD
    assert Keeper(tmp_path).result("b") is None
    assert Keeper(None).result("a") is None


@pytest.mark.parametrize("place", range(0, 160, 7))
def test_a_changed_digit_is_a_result_that_was_not_kept(tmp_path: Path, place: int) -> None:
    Keeper(tmp_path).finish("a", RECORD)
    path = tmp_path / "a.json"
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1
    path.write_bytes(content)
    assert Keeper(tmp_path).result("a") in (None, RECORD)
    path.write_bytes(content[: place % len(content)])
    assert Keeper(tmp_path).result("a") is None


def test_a_result_of_another_shape_is_none(tmp_path: Path) -> None:
    for text in ("[]", "1", "{}", '{"record": []}', '{"record": {}, "sha256": 1}', "[" * 100_000, "\udcff"):
        (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert Keeper(tmp_path).result("a") is None
