"""The report's clients: their own numbers, and H_N and H_D of every pair."""

from fedscope.records.hessian_record import HessianRecord
from fedscope.report.client_charts import pair_charts
from fedscope.report.subjects import subjects
from tests.figures.records import crossed, curvature
from tests.report.pages import report_page
from tests.report.test_report import Page, rows


def test_clients_are_shown_one_by_one_and_in_pairs() -> None:
    found = Page(report_page([], [curvature(cross_client=crossed())], []))
    assert "Clients" in [words for level, words in found.headings if level == 2]
    table = rows(found, "Client by client")
    for word in ("2.00 ± 0.10", "0.8000", "5"):
        assert word in table
    assert "λ_max ± data" not in table  # no client's was measured
    assert "12.00 ± 0.10" in found.text
    assert "unresolved" in found.text
    charts = found.json("page-data")["charts"]
    pairs, agreement = charts["H_N-0"]["data"][0], charts["H_D-0"]["data"][0]
    assert pairs["z"] == [[None, 1.0, 2.0], [1.0, None, 3.0], [2.0, 3.0, None]]
    assert (pairs["zmin"], pairs["zmax"]) == (1.0, 3.0)
    assert (agreement["z"][0][1], agreement["zmax"]) == (0.5, 1.0)


def test_records_without_the_clients_own_numbers_have_no_such_part() -> None:
    old = {
        key: value
        for key, value in crossed().items()
        if key not in ("numbers", "traces", "overlap", "matrices")
    }
    found = Page(report_page([], [curvature(cross_client=old)], []))
    assert "Clients" not in [words for level, words in found.headings if level == 2]


def test_pairs_that_are_unresolved_are_left_out_of_the_scale_and_marked() -> None:
    pairs = [[0.0, 10.0, -4.7], [10.0, 0.0, 1000.0], [-4.7, 1000.0, 0.0]]
    matrices = {"H_N": {"tensor": pairs}, "H_D": {"tensor": None}}
    stated = {"H_N": {"tensor": [[value >= 0 for value in row] for row in pairs]}, "H_D": {"tensor": None}}
    cross = crossed(matrices=matrices, matrices_resolved=stated)
    record = HessianRecord.read(curvature(cross_client=cross))
    (subject,) = subjects([], [record]).values()
    ((chart,),) = pair_charts([(subject, record)]).values()
    heat, unclear = chart.data
    assert (heat["zmin"], heat["zmax"], heat["z"][0]) == (1.0, 3.0, [None, 1.0, None])
    assert unclear["z"] == [[None, None, 1], [None, None, None], [1, None, None]]
    assert chart.caption == (
        "H_N (tensor) of FedAvg's clients, pair by pair; their mean: 12.00 ± 0.10. Grey: unresolved."
    )
