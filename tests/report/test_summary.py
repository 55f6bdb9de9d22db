"""The report's summary: what was compared, headline numbers, and verdicts that follow from the records."""

from typing import Any

import pytest

from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import hessians
from fedscope.report.headlines import Summary, best, sentences, summary
from fedscope.report.subjects import subjects
from tests.figures.records import checkpoint, crossed, curvature, estimate, landscape, run
from tests.report.pages import report_page
from tests.report.test_report import Page


def paired(
    name: str, method: str, trace: float, top: float = 20.0, spread: float = 1.0, **changes: Any
) -> dict[str, Any]:
    """A record of two batches and eight probes, whose errors of differences grow with ``spread``."""
    values = {"value": top, "residual": 0.0, "stderr_data": 0.5, "batches": [top - spread, top + spread]}
    total = {
        "value": trace,
        "stderr_probe": 1.0,
        "stderr_data": 1.0,
        "samples": [trace + spread * (i % 3) for i in range(8)],
        "batches": [trace - spread, trace + spread],
    }
    return curvature(name, method, lambda_max=values, trace=total, **changes)


def clients(H_N: dict[str, Any], H_D: dict[str, Any]) -> dict[str, Any]:
    return crossed(H_N={"tensor": H_N, "parameter": H_N}, H_D={"tensor": H_D, "parameter": H_D})


ONE = paired("one", "fedavg", 500.0, cross_client=clients(estimate(90.0, 5.0), estimate(0.5, 0.01)))
FLATTER = paired(
    "two", "fedavg+man", 300.0, 19.5, 2.0, cross_client=clients(estimate(40.0, 5.0), estimate(0.9, 0.01))
)
SHARPER = paired("three", "fedprox", 900.0, 20.1, 3.0)
NAMES = ("FedAvg", "FedAvg+MAN", "FedProx")


def summarised(*records: dict[str, Any], runs: tuple[dict[str, Any], ...] = ()) -> Summary:
    curvatures, own = hessians(records), [RunRecord.read(run) for run in runs]
    return summary(own, curvatures, [], subjects(own, curvatures))


def test_it_says_what_was_compared_and_on_what() -> None:
    found = summarised(ONE, FLATTER, runs=(run("one"), run("two", "fedavg+man")))
    assert found.facts == (
        (
            "Trained",
            "resnet_digits on digits, dirichlet_equal, α 0.5, 10 clients, 50\u00a0% per round, seed 3",
        ),
        ("Measured on", "128 samples of digits, train split, seed 7"),
    )
    before = summarised(paired("one", "fedavg", 500.0, checkpoint=checkpoint("one", 2)), runs=(run("one"),))
    assert before.facts[-1] == ("Not at the end", "curvature of round 2, accuracy of round 4")
    assert found.table.columns[:3] == ("method", "final accuracy (%)", "λ_max ± data")
    assert [cell.text for cell in found.table.rows[1]] == [
        "FedAvg+MAN", "40.00", "19.50 ± 0.50", "300.0 ± 1.0 ± 1.0", "40.0 ± 5.0", "0.900 ± 0.010",
    ]  # fmt: skip


def test_verdicts_are_the_differences_in_words() -> None:
    found = dict(sentences(hessians([ONE, FLATTER, SHARPER]), NAMES))
    assert found == {
        "λ_max": "undecided against FedAvg: FedAvg+MAN (−0.5 ± 1.0) and FedProx (+0.1 ± 2.0).",
        "trace": "FedAvg+MAN (−200.0 ± 1.0) is flatter than FedAvg; "
        "FedProx (+400.0 ± 2.1) is sharper than FedAvg.",
        "H_N (tensor)": "the clients of FedAvg+MAN (−50.0 ± 7.1) differ less than those of FedAvg.",
        "H_D (tensor)": "the clients of FedAvg+MAN (+0.400 ± 0.014) agree more than those of FedAvg.",
    }
    swapped = dict(sentences(hessians([FLATTER, ONE]), ("FedAvg+MAN", "FedAvg")))
    assert swapped["trace"] == "FedAvg (+200.0 ± 1.0) is sharper than FedAvg+MAN."
    assert sentences(hessians([ONE]), NAMES[:1]) == []


def bests(*records: dict[str, Any]) -> dict[str, int]:
    return {one.symbol: place for one, place in best(hessians(records)).items()}


def test_the_best_is_marked_only_where_it_is_decided() -> None:
    assert bests(ONE, FLATTER) == {"trace": 1, "H_N (tensor)": 1, "H_D (tensor)": 1}
    assert bests(ONE, FLATTER, SHARPER) == {"trace": 1}  # of the third, H_N and H_D are not known
    tied = paired("four", "moon", 300.1, spread=3.0)
    assert best(hessians([ONE, FLATTER, tied])) == {}
    assert best(hessians([ONE])) == {}
    found = summarised(ONE, FLATTER)
    marks = [[cell.mark for cell in row] for row in found.table.rows]
    assert marks == [[None] * 5, [None, None, "lowest", "lowest", "highest"]]


@pytest.mark.parametrize(
    "entry",
    [
        {"value": -12.6, "stderr": 30.0, "resolved": False},
        {"value": None, "stderr": None},
    ],
)
def test_what_is_unresolved_is_said_and_never_compared(entry: dict[str, Any]) -> None:
    unclear = paired("two", "fedavg+man", 300.0, cross_client=clients(entry, estimate(0.5)))
    found = summarised(ONE, unclear)
    assert found.table.rows[1][3].text == "unresolved"
    assert dict(found.verdicts)["H_N (tensor)"] == "unresolved for FedAvg+MAN."
    assert "H_N (tensor)" not in bests(ONE, unclear)
    page = Page(report_page([], [ONE, unclear], [])).text
    assert "−12.6" not in page
    assert page.count("unresolved") >= 5  # in three tables, a verdict and the guide


def test_records_of_other_samples_are_not_compared() -> None:
    other = paired("two", "fedavg+man", 300.0, samples_sha256="6" * 64)
    found = summarised(ONE, other)
    assert found.verdicts == ()
    assert found.remark == "Not compared, as samples or settings are not FedAvg's: FedAvg+MAN."
    some = summarised(ONE, other, SHARPER)
    assert [name for name, _ in some.verdicts] == ["λ_max", "trace"]
    assert "FedAvg+MAN" not in "".join(sentence for _, sentence in some.verdicts)
    assert not any(cell.mark for row in some.table.rows for cell in row)


def test_every_H_N_stands_with_its_error_under_the_tables_own_name() -> None:
    text = Page(report_page([], [ONE, FLATTER], [])).text
    assert text.count("90.0 ± 5.0") == 4  # headline, both readings, the heat map's caption
    for name in ("HN (tensor)", "HN (parameter)", "HD (tensor)", "HD (parameter)"):
        assert name in text
    for words in ("H_N, block", "H_N, diagonal", "bends"):
        assert words not in text


def test_several_rounds_of_one_run_have_names_of_their_own() -> None:
    early = ONE | {"checkpoint": ONE["checkpoint"] | {"round": 2, "sha256": "2" * 64}}
    found = summarised(early, ONE)
    assert [row[0].text for row in found.table.rows] == ["FedAvg, round 2", "FedAvg, round 4"]


def test_a_page_without_curvature_has_a_summary_and_one_of_landscapes_alone_has_none() -> None:
    found = Page(report_page([run()], [], [landscape()]))
    assert "Measured on" in found.text
    table = found.text[found.text.index("Headline numbers") : found.text.index("How to read this")]
    assert (table.count("not measured"), "H_N" in table) == (2, False)  # λ_max and trace alone
