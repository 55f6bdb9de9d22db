"""The spread between trainings that columns without seeds borrow: how large, how sure, and what is said."""

from dataclasses import replace

import pytest

from fedscope.reproduce.artefacts.claims import borrowed_notes, borrowed_spreads
from fedscope.reproduce.artefacts.row_differences import Samples
from fedscope.reproduce.recipes.spec import recipe
from tests.reproduce.artefacts.test_row_differences import column, seeds

FOR = recipe("fedfor/table2", "cpu")


def test_a_papers_deviations_are_pooled_each_once() -> None:
    """Of 3 seeds each, so with two degrees of freedom: four methods in two columns."""
    found = borrowed_spreads(FOR, {})["best_accuracy"]
    printed = [0.79, 0.77, 0.93, 0.82, 0.58, 0.21, 0.36, 0.66]
    assert found.value == pytest.approx((sum(std**2 for std in printed) / 8) ** 0.5)
    assert (found.dof, found.relative, found.rows, found.source) == (16, False, (), "the paper")
    twice = {**FOR.columns, "again": replace(FOR.columns["column 1"], published="column 1")}
    assert borrowed_spreads(replace(FOR, columns=twice), {})["best_accuracy"] == found


def test_a_papers_deviations_of_curvature_are_relative() -> None:
    one = replace(FOR, claims=("FedFOR < FedAvg in trace",))
    assert borrowed_spreads(one, {}) == {}  # it prints none of it


def test_seeds_elsewhere_come_before_the_papers_deviations() -> None:
    elsewhere = column("best_accuracy", A=seeds(40, 42), B=seeds(50))
    found = borrowed_spreads(replace(FOR, spread_of=("man/table1", "x")), elsewhere)
    assert found["best_accuracy"].value == pytest.approx(2**0.5)
    assert (found["best_accuracy"].rows, found["best_accuracy"].source) == (("A",), "man/table1")
    assert found["best_half_accuracy"].source == "the paper"


def test_a_note_says_whose_it_is_where_it_is_needed() -> None:
    spreads = borrowed_spreads(FOR, {})
    alone = _of("column 1", FedAvg=1, FedFOR=1)
    (note,) = borrowed_notes(FOR, alone, spreads)
    assert note.startswith("spread between trainings: of the deviations that the paper prints: best acc")
    assert note.endswith(" 0.68")
    assert borrowed_notes(FOR, _of("column 1", FedAvg=3, FedFOR=1), spreads) == []  # it has one of its own
    assert borrowed_notes(FOR, {}, spreads) == []


def _of(where: str, **counts: int) -> Samples:
    rows = column("best_accuracy", **{row: seeds(*range(40, 40 + count)) for row, count in counts.items()})
    return {(row, where, name): sample for (row, _, name), sample in rows.items()}
