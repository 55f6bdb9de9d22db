"""What the golden day notices: one digit of a value, one part in 10¹² of an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import run as golden
from tests.golden.arithmetic import fingerprint
from tests.golden.numbers import differences, lines

RECORD = {
    "schema": "a/1", "seconds": 3.2, "made": "in /here/runs",
    "lambda_max": {"value": 2.5, "stderr_data": 0.3, "residual": None},
    "grid": [0.1 * i for i in range(20)], "loss": [[1.0, 2.0, 3.0]] * 4, "values": [1, 2],
    "entries": [{"name": str(i), "value": i / 7} for i in range(30)],
}  # fmt: skip


def changed(change: Any, *place: Any) -> dict[str, Any]:
    record: Any = json.loads(json.dumps(RECORD))
    *way, last = place
    inner = record
    for key in way:
        inner = inner[key]
    inner[last] = change
    return lines(record, "/here")


GOLDEN = lines(RECORD, "/here")


@pytest.mark.parametrize(
    ("change", "place", "noticed"),
    [
        (2.5000000000000004, ("lambda_max", "value"), "lambda_max.value"),
        (0.3 * (1 + 1e-11), ("lambda_max", "stderr_data"), "lambda_max.stderr_data"),
        (0.3 * (1 + 1e-13), ("lambda_max", "stderr_data"), None),
        (1e-9, ("lambda_max", "residual"), "lambda_max.residual"),
        (None, ("lambda_max", "value"), "lambda_max.value"),
        (0.30000000000000010, ("grid", 3), "grid.digest"),
        (2.0000001, ("loss", 2, 1), "loss.sum"),
        (1.0, ("values", 0), "values[0]"),
        (0.5, ("entries", 25, "value"), "entries.digest"),
        (9.9, ("seconds",), None),
    ],
)
def test_what_is_noticed(change: Any, place: tuple[Any, ...], noticed: str | None) -> None:
    found = differences(GOLDEN, changed(change, *place))
    assert [line.partition(":")[0] for line in found][:1] == ([noticed] if noticed else []), found


def test_a_number_that_is_gone_or_new_is_told_and_folders_are_not() -> None:
    assert differences({"a": 1.0}, {"b": 1.0}) == ["a: 1.0 is now nothing", "b: nothing is now 1.0"]
    assert lines({**RECORD, "made": "in /there/runs"}, "/there") == GOLDEN
    assert len(GOLDEN) < 50
    assert lines({"reused": False, "non_finite": 2}, "") == {"reused": False, "non_finite": 2}
    assert lines({"reused": True, "non_finite": 2}, "") == {"reused": True}


def test_another_processor_skips_the_day_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(golden, "PROCESSOR", tmp_path / "processor.json")
    monkeypatch.setattr("sys.argv", ["golden"])
    golden.PROCESSOR.write_text('{"arithmetic": "another"}')
    assert golden.main() == 0
    assert capsys.readouterr().out.startswith("skipped: the golden numbers are of arithmetic another")


def test_the_arithmetic_of_one_machine_is_one() -> None:
    assert fingerprint() == fingerprint()
