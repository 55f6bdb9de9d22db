"""The page, the picture and the paper's line of a search of lost settings."""

import numpy as np
import pytest

from fedscope.records.artefact import ArtefactRecord
from fedscope.records.entries import Record
from fedscope.reproduce.gallery.render import markdown
from studies.settings.likely_settings import grid_of
from studies.settings.search_record import SearchRecord
from studies.settings.search_study import drawn, likeliest, page, sentence
from tests.reproduce.gallery.test_render import artefact

PRINTED = {"best_half_accuracy": 40.0, "best_accuracy": 46.0}


def result(
    candidate: str, share: float | None, *, column: str = "column 1", p: float = 0.4, high: int = 8
) -> Record:
    """Return a candidate's result; without a share it is too short, with one of 0 the only one."""
    return {
        "column": column, "candidate": candidate, "share": share or None, "short": share is None,
        "rounds": 6, "low": 5, "high": high, "end": 20, "log_evidence": 0.0, "p": p,
        "entries": [
            {"row": "FedAvg", "quantity": quantity, "expected": value + 1, "printed": value}
            for quantity, value in PRINTED.items()
        ],
    }  # fmt: skip


def searched(*results: Record) -> Record:
    return {
        "results": list(results), "spread": {"best_half_accuracy": 0.02, "best_accuracy": 0.01},
        "trainings": 3, "correlation": 0.5, "common": 0.8, "dof": 4.0, "open": {"ρ": "too dear"},
    }  # fmt: skip


def search(*results: Record) -> SearchRecord:
    return SearchRecord.read(searched(*results))


def curves(*results: Record) -> ArtefactRecord:
    """Return the artefact with the search's table, and the accuracies of two candidates."""
    accuracies = {"E = 1": np.linspace(0.1, 0.5, 20), "E = 2": np.linspace(0.1, 0.3, 20)}
    return artefact(
        kind="search", grid=grid_of(searched(*results)), entries=[], claims=[], rows=["FedAvg"],
        columns=[*accuracies], quantities={"curve": "accuracy by round"},
        drawn=[
            {"row": "FedAvg", "column": column, "seed": 1, "accuracy": values.tolist()}
            for column, values in accuracies.items()
        ],
    )  # fmt: skip


def test_the_page_says_the_likeliest_and_how_sure_that_is() -> None:
    text = page(search(result("E = 1", 0.7), result("E = 2", 0.3), result("E = 4", None)), "cpu")
    assert "column 1: most likely **E = 1, 6 rounds** (5 to 8), a share of 70 % among 2." in text
    assert "The stated errors explain what is left" in text
    assert "column 1: too short, since below the printed numbers at the end: E = 4." in text
    assert "Not tried: ρ: too dear." in text
    assert "2.0 % of the accuracy by T/2, 1.0 % of that by T" in text
    assert "stand-in" not in text


def test_one_candidate_alone_has_no_share_to_speak_of() -> None:
    text = page(search(result("E = 1", 0.0, p=0.01, high=20)), "smoke")
    assert "(5 to ≥ 20), the only one that is long enough. Even this does not explain the numbers" in text
    assert "100 %" not in text
    assert "of a stand-in, and say nothing of the paper" in text


def test_the_printed_numbers_stand_as_points_where_they_fit() -> None:
    short = result("E = 2", None, column="column 2")
    results = (result("E = 1", 0.7), result("E = 2", 0.3), short)
    (figure,) = drawn(curves(*results), search(*results))
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"E = 1", "E = 2", "column 1, printed"}  # of column 2 nothing fits
    lines = {str(line.get_label()): line for line in axes.lines}
    first = lines["E = 1"]
    assert first.get_linestyle() != "None"
    (bars,) = axes.containers
    points = bars[0]
    assert points.get_linestyle() == "None"
    assert np.allclose(points.get_xydata(), [[3, 40.0], [6, 46.0]])


def test_the_papers_page_has_the_likeliest_of_each_column() -> None:
    found = search(result("E = 1", 0.7), result("E = 2", 0.3), result("E = 2", None, column="column 2"))
    assert [(one.column, one.candidate) for one in likeliest(found)] == [("column 1", "E = 1")]
    assert sentence(found).endswith("column 1: E = 1, 6 rounds (5 to 8; 70 % of the share).")


def test_a_paper_whose_columns_are_out_of_reach_says_so() -> None:
    assert "none: every training ends below the printed numbers" in sentence(search(result("E = 1", None)))


@pytest.mark.parametrize("share", [0.7, None])
def test_the_table_has_the_print_in_brackets(share: float | None) -> None:
    text = markdown(curves(result("E = 1", share)))
    assert "| 41.00 [40.00] | 47.00 [46.00] |" in text
    assert ("6 (5 to 8)" if share else "\\> 20 | – |") in text


def test_a_search_with_nothing_trained_says_so() -> None:
    text = sentence(search())
    assert "nothing is trained yet" in text
    assert "ends below" not in text
