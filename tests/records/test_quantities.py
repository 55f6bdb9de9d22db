"""A new quantity is a row, and tables, report and JSON have it; a distance of records is a function too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.figures.text import comparison_table, hessian_table
from fedscope.records import differences
from fedscope.records.differences import Difference, compared
from fedscope.records.estimates import EstimateEntry
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.quantities import QUANTITIES, Quantity
from fedscope.records.saved_records import hessians
from fedscope.report import curvature_tables
from tests.report.pages import report_page
from tests.report.test_summary import FLATTER, ONE

GLOSSARY = Path(__file__).parents[2] / "docs" / "glossary.md"
Add = Callable[[Quantity], None]


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Add:
    def added(row: Quantity) -> None:
        for module in (differences, comparison_table, hessian_table, curvature_tables):
            monkeypatch.setattr(module, "QUANTITIES", (*QUANTITIES, row))

    return added


def scaled(record: HessianRecord) -> EstimateEntry:
    assert record.trace
    return EstimateEntry(value=record.trace.value / 100, stderr=0.03)


def test_sharpness_is_told_by_the_largest_eigenvalue_and_the_trace() -> None:
    assert [one.name for one in QUANTITIES if one.sharpness] == ["lambda_max", "trace"]


def test_a_number_of_a_record_is_a_row(add: Add) -> None:
    add(Quantity("scaled_trace", "scaled trace", scaled, errors=" ± probe"))
    one, other = hessians([ONE, FLATTER])
    table = hessian_table.hessian_table([one, other])
    assert table.columns[-1] == "scaled trace ± probe"
    assert table.rows[0][-1] == "5.000 ± 0.030"
    (found,) = (entry for entry in compared([one, other])[1].differences if entry.quantity == "scaled trace")
    assert (found.value, found.verdict) == (-2.0, "lower")
    assert found.stderr == pytest.approx(0.03 * 2**0.5)
    assert comparison_table.comparison_table([one, other]).columns[-1] == "scaled trace"
    page = report_page([], [ONE, FLATTER], [])
    assert "scaled trace ± probe" in page
    assert "−2.000 ± 0.042: lower" in page


def test_a_distance_of_two_records_is_a_row_and_a_function(add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Quantity("distance", "distance of spectra", meaning="between the largest eigenvalues")
    add(row)

    def distance(reference: HessianRecord, other: HessianRecord) -> Difference:
        apart = abs(reference.lambda_max.value - other.lambda_max.value)
        return Difference(row.symbol, apart, data=(0.25, 9.0), signed=False)

    monkeypatch.setattr(differences, "_OF_TWO", {**differences._OF_TWO})
    differences.in_quantity(row)(distance)
    records = hessians([ONE, FLATTER])
    assert "distance of spectra" not in hessian_table.hessian_table(records).columns  # no record has one
    table = comparison_table.comparison_table(records)
    assert (table.columns[-1], table.rows[0][-1]) == ("distance of spectra", "0.50 ± 0.25")
    assert "distance of spectra: between the largest eigenvalues" in table.notes[0]
    assert compared(records)[1].to_json()["differences"][-1]["verdict"] is None
    assert "0.50 ± 0.25" in report_page([], [ONE, FLATTER], [])


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda one: one.name)
def test_the_glossary_has_it(quantity: Quantity) -> None:
    terms = [
        line.split("|")[1:3] for line in GLOSSARY.read_text("utf-8").splitlines() if line.startswith("| ")
    ]
    assert any(f"`{quantity.mean or quantity.name}`" in in_records for _, in_records in terms)
