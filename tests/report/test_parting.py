"""The clients of a round on the page: the tables that the command prints, and every picture there is."""

import fedscope.report as report
from fedscope.figures.text.client_tables import clients_tables
from fedscope.records.saved_records import hessians
from fedscope.report.clients_by_round import round_parts
from tests.figures.clients.records import record
from tests.figures.records import curvature


def test_a_round_has_the_tables_and_pictures_of_the_command() -> None:
    one, other = record(3), record(4, run="fedprox", alignment=None, overlap=None)
    page = report.report_page([], hessians([curvature()]), [], [one, other])
    assert page.count('id="rounds-title"') == 1
    assert page.count("<figcaption>fedavg@3: ") == 4
    assert page.count("<figcaption>fedprox@3: ") == 2
    for table in (*clients_tables(one), *clients_tables(other)):
        assert table.title in page
        assert all(cell in page for row in table.rows for cell in row)
    assert page.count("fedavg@3 (fedscope/clients/1)") == 1
    assert page == report.report_page([], hessians([curvature()]), [], [one, other])


def test_barriers_have_their_matrix_without_overlaps() -> None:
    nothing = {"value": 0.0, "stderr": 0.0}
    barriers = {
        "mean": nothing, "average": nothing, "matrix": [[None, 0.1], [0.1, None]],
        "stderr": [[None, 0.0], [0.0, None]], "similarities": [[1.0, 0.9], [0.9, 1.0]],
    }  # fmt: skip
    empty = record(2, flatness=[], alignment=None, averaging=None, overlap=None)  # type: ignore[arg-type]
    one = empty.edited(barriers=barriers)
    for shown, pictures in ((empty, 0), (one, 1)):
        (found,) = round_parts([shown])
        assert len(found["pictures"]) == pictures


def test_without_a_round_there_is_no_such_section() -> None:
    assert "Where clients part" not in report.report_page([], hessians([curvature()]), [])
