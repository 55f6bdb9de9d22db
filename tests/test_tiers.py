"""The tiers' table names tests that are there; what a tier draws; what the file of costs is made of."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import costs, tiers

ROOT = Path(__file__).parents[1]


def item(nodeid: str, *markers: str, property: bool = False) -> Any:
    """Stands for a collected test."""
    return SimpleNamespace(
        nodeid=nodeid,
        get_closest_marker=lambda name: name if name in markers else None,
        obj=SimpleNamespace(is_hypothesis_test=property),
    )


@pytest.mark.parametrize("name", [*tiers.KEPT, *tiers.LEFT_OUT])
def test_a_row_of_the_table_names_tests_that_are_there(name: str) -> None:
    file, _, test = name.replace("\\", "").partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    begins = re.compile(
        rf"^def {re.escape(test) if name in tiers.KEPT else test.partition('[')[0]}", re.MULTILINE
    )
    assert begins.search(text)
    assert (name in tiers.KEPT) <= ("pytestmark = pytest.mark.slow" in text)


def test_both_tiers_together_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, slow = item("tests/a.py::test_a"), item("tests/a.py::test_b", "slow")
    kept = item(f"{tiers.KEPT[-1]}_more[1]", "slow")
    method = "tests/federated/test_golden.py::test_golden_losses[{}]"
    known, other = item(method.format("fedsam")), item(method.format("fedasam"))
    drawn, fuzz = item("tests/a.py::test_c", "drawn"), item("tests/a.py::test_d", property=True)
    every = [plain, slow, kept, known, other, drawn, fuzz]
    found = {}
    for tier in tiers.TIERS:
        monkeypatch.setattr(tiers, "_chosen", tier)
        found[tier] = [one for one in every if tiers.runs(one)]
    assert found == {
        "fast": [plain, kept, known, drawn, fuzz],
        "rest": [slow, other, drawn, fuzz],
        "all": every,
    }


def test_the_fast_tier_draws_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_DRAWS", raising=False)
    monkeypatch.setattr(tiers, "_chosen", "rest")
    assert (tiers.draws(), tiers.draws(most=40), tiers.examples(), tiers.examples(5)) == (300, 40, 100, 5)
    monkeypatch.setenv("FEDSCOPE_DRAWS", "1000")
    assert tiers.draws(most=40) == 1000
    monkeypatch.setattr(tiers, "_chosen", "fast")
    assert (tiers.draws(), tiers.draws(40), tiers.examples(), tiers.examples(5)) == (20, 40, 25, 5)


def test_a_share_may_be_off_by_what_so_many_draws_leave_open() -> None:
    assert [tiers.nominal(hits, 300) for hits in (275, 276, 294, 295)] == [False, True, True, False]
    assert [tiers.nominal(hits, 20) for hits in (16, 17, 20)] == [False, True, True]


def test_costs_are_sums_of_functions_of_the_dearest_run(tmp_path: Path) -> None:
    """A test of both tiers stands twice; what is cheap, together."""
    each = [
        ("tests/b.py::test_x[1]", 1.0), ("tests/b.py::test_x[2]", 2.0), ("tests/b.py::test_x[2]", 2.5),
        ("tests/b.py::test_y", 0.01), ("tests/b.py::test_z", 0.02), ("tests/a.py::test_x", 0.3),
    ]  # fmt: skip
    found = costs.costs(json.dumps(one) for one in each)
    assert found == {"tests/a.py": {"test_x": 0.3}, "tests/b.py": {"test_x": 3.5, "cheaper": 0.03}}
    assert list(found) == ["tests/a.py", "tests/b.py"]


def test_the_dearest_file_comes_first_and_stays_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "durations.json"
    monkeypatch.setattr(costs, "FILE", file)
    names = ["new.py::a", "cheap.py::b", "dear.py::c", "dear.py::a"]
    items = [item(name) for name in names]
    costs.dearest_first(items)
    assert [one.nodeid for one in items] == names
    file.write_text('{"dear.py": {"a": 1.0, "c": 2.0}, "cheap.py": {"b": 1.5}}')
    costs.dearest_first(items)
    assert [one.nodeid for one in items] == ["new.py::a", "dear.py::c", "dear.py::a", "cheap.py::b"]


def test_the_time_of_children_counts() -> None:
    before = costs.processor_seconds()
    sum(range(3_000_000))
    assert costs.processor_seconds() > before
