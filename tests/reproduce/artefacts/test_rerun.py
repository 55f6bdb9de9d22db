"""A rerun beside a gallery: equal, within the seeds' spread, beyond it, or beyond the measurement alone."""

from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.artefacts.rerun import Change, check


def artefact(
    *each: list[float], error: float = 1.0, verdict: str = "holds", **changes: Any
) -> ArtefactRecord:
    """A table with one row per list of the seeds' values."""
    cells = [
        {
            "row": f"row {i}", "column": "c", "quantity": "accuracy", "value": sum(v) / len(v) if v else None,
            "std": None, "error": error, "seeds": len(v), "each": v, "text": None, "round": 5, "paper": None,
            "differs": None,
        }
        for i, v in enumerate(each)
    ]  # fmt: skip
    return ArtefactRecord.read(
        {
            "schema": "fedscope/artefact/1", "recipe": "man/table1", "title": "t", "printed_in": "Table 1",
            "source": "s", "kind": "table", "scale": "cpu", "why": [], "reductions": [], "provisional": [],
            "notes": [], "command": "c", "complete": True, "rows": [], "columns": ["c"],
            "quantities": {"accuracy": "accuracy"}, "entries": cells,
            "claims": [{"statement": "a < b", "verdict": verdict, "evidence": []}], "drawn": [], "runs": [],
            "versions": {}, **changes,
        }
    )  # fmt: skip


def change(here: list[float], there: list[float]) -> Change:
    (found,) = check(artefact(here), artefact(there)).changes
    return found


def test_equal_numbers_are_equal() -> None:
    assert change([40.0], [40.0]).outcome == "equal"


def test_the_spread_of_several_seeds_decides() -> None:
    """Of 40, 42, 44 the deviation is 2; one more training is off their mean by 2·√(1 + 1/3) with 2 dof."""
    found = change([45.0], [40.0, 42.0, 44.0])
    assert found.error == pytest.approx(2 * (4 / 3) ** 0.5)
    assert found.outcome == "within"
    assert change([53.0], [40.0, 42.0, 44.0]).outcome == "beyond"
    both = change([40.0, 42.0, 44.0], [47.0, 49.0, 51.0])
    assert both.error == pytest.approx((4 / 3 + 4 / 3) ** 0.5)
    assert both.outcome == "beyond"


def test_of_one_seed_each_only_the_measurement_is_known() -> None:
    assert change([41.0], [40.0]).outcome == "within"
    assert change([45.0], [40.0]).outcome == "beyond the measurement"
    unknown = check(artefact([45.0], error=float("nan")), artefact([40.0])).changes[0]
    assert unknown.outcome == "not comparable"


def test_many_numbers_are_judged_together() -> None:
    """One of z = 2.5 is beyond alone, and within among ten."""
    alone = check(artefact([43.6]), artefact([40.0])).changes[0]
    assert alone.outcome == "beyond the measurement"
    among = check(artefact([43.6], *[[40.5]] * 9), artefact(*[[40.0]] * 10))
    assert [one.outcome for one in among.changes] == ["within"] * 10
    assert not among.beyond


def test_a_number_that_one_lacks_is_missing_and_verdicts_are_compared() -> None:
    found = check(artefact([40.0], [], verdict="undecided"), artefact([40.0]))
    assert [one.outcome for one in found.changes] == ["equal", "missing"]
    ((here, there),) = found.claims
    assert (here.verdict, there and there.verdict) == ("undecided", "holds")


def test_other_recipes_are_refused() -> None:
    with pytest.raises(UserError, match="compare the same recipe at the same scale"):
        check(artefact([1.0]), artefact([1.0], scale="paper"))


def test_numbers_of_other_rounds_are_not_compared() -> None:
    cut = artefact([28.0])
    other = cut.edited(entries=[{**one.to_json(), "round": 2} for one in cut.entries])
    (found,) = check(artefact([40.0]), other).changes
    assert found.outcome == "not comparable"
    assert not check(artefact([40.0, 41.0, 42.0]), other).beyond
