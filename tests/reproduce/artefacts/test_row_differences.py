import math
from dataclasses import replace

import pytest

from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.artefacts.claims import judge
from fedscope.reproduce.artefacts.row_differences import Sample, Samples, difference, spread_between_seeds
from fedscope.reproduce.recipes.table_quantities import Number
from tests.figures.records import curvature
from tests.records.test_outcomes import record


def seeds(*values: float) -> Sample:
    return Sample(tuple(Number(value, 0.1) for value in values), (None,) * len(values), 10)


def column(quantity: str, **rows: Sample) -> Samples:
    return {(row, "", quantity): sample for row, sample in rows.items()}


ROWS = column("accuracy", A=seeds(40, 42), B=seeds(50, 51, 52), C=seeds(43), D=seeds(41))


def test_the_spread_of_accuracies_is_pooled_as_it_is() -> None:
    """(40, 42) has the variance 2 with one degree of freedom, (50, 51, 52) 1 with two: 4/3 with three."""
    found = spread_between_seeds(ROWS, "", "accuracy")
    assert found is not None
    assert found.value == pytest.approx(math.sqrt(4 / 3))
    assert (found.dof, found.rows) == (3, ("A", "B"))
    assert found.of(7.0) == found.value


def test_the_spread_of_curvature_is_relative() -> None:
    """(90, 110) and (9, 11) vary by √2/10 of their means alike."""
    found = spread_between_seeds(column("trace", A=seeds(90, 110), B=seeds(9, 11)), "", "trace")
    assert found is not None
    assert found.value == pytest.approx(math.sqrt(2) / 10)
    assert found.of(50.0) == pytest.approx(5 * math.sqrt(2))


def test_without_two_seeds_there_is_no_spread() -> None:
    assert spread_between_seeds(column("trace", A=seeds(1), B=seeds(2)), "", "trace") is None
    assert spread_between_seeds(column("trace", A=seeds(1, 2)), "other", "trace") is None
    diverged = Sample((*seeds(1, 2).numbers, Number(None)), (None,) * 3, 10)
    assert spread_between_seeds(column("trace", A=diverged), "", "trace") is None
    assert spread_between_seeds(column("trace", A=seeds(1, 2)), "", "accuracy") is None


def test_a_single_seed_borrows_the_spread_of_the_others() -> None:
    spread = spread_between_seeds(ROWS, "", "accuracy")
    gap = difference("accuracy", seeds(43), seeds(41), spread)
    assert (gap.value, gap.data[1]) == (2, 3)
    assert gap.stderr == pytest.approx(math.sqrt(2 * 4 / 3 + 2 * 0.1**2))
    against_many = difference("accuracy", seeds(43), seeds(50, 51, 52), spread)
    assert against_many.stderr == pytest.approx(math.sqrt(4 / 3 + 4 / 9 + 2 * 0.1**2))
    (claim,) = judge(["C > D in accuracy"], ROWS, [""], ["A", "B", "C", "D"])
    assert claim.verdict == "undecided"
    assert "(one seed; spread between trainings of A and B)" in claim.evidence[0]
    alone = column("accuracy", C=seeds(43), D=seeds(41))
    assert spread is not None
    elsewhere = replace(spread, source="man/table1")
    (claim,) = judge(["C > D in accuracy"], alone, [""], ["C", "D"])
    assert claim.verdict == "holds"
    (claim,) = judge(["C > D in accuracy"], alone, [""], ["C", "D"], borrowed={"accuracy": elsewhere})
    assert claim.verdict == "undecided"
    assert "(one seed; spread between trainings of man/table1)" in claim.evidence[0]


def test_accuracies_are_paired_over_the_test_samples() -> None:
    """Of 200 samples 30 are right in the first alone, 10 in the second alone."""
    first = record([True] * 130 + [False] * 70)
    second = record([False] * 30 + [True] * 100 + [True] * 10 + [False] * 60)
    ours = Sample((Number(65.0, 3.4),), (first,), 10)
    theirs = Sample((Number(55.0, 3.5),), (second,), 10)
    gap = difference("best_accuracy", ours, theirs)
    assert gap.value == 10
    assert gap.stderr == pytest.approx(100 * math.sqrt(38 / 199 / 200))
    more = (Number(66.0, 3.4), Number(64.0, 3.4))
    several = Sample(more, (first, first), 10)
    spread = spread_between_seeds(column("best_accuracy", A=several), "", "best_accuracy")
    for one, own in ((several, 2 / 2 + 2), (ours, 2 + 2)):
        together = difference("best_accuracy", one, theirs, spread)
        assert together.stderr == pytest.approx(math.sqrt(own + 1e4 * 38 / 199 / 200))
        assert together.data[1] == 1
    elsewhere = Sample((Number(55.0, 3.5),), (record([True] * 200, "other"),), 10)
    assert difference("best_accuracy", ours, elsewhere).stderr == pytest.approx(math.hypot(3.4, 3.5))


def test_the_trainings_that_pair_need_not_be_the_first_ones() -> None:
    """The answers of the first seed were not kept: 30 and 10 of 200 differ in the second's."""
    first = record([True] * 130 + [False] * 70)
    second = record([False] * 30 + [True] * 100 + [True] * 10 + [False] * 60)
    ours = Sample((Number(66.0, 3.4), Number(64.0, 3.4)), (None, first), 10)
    theirs = Sample((Number(56.0, 3.5), Number(54.0, 3.5)), (None, second), 10)
    found = difference("best_accuracy", ours, theirs)
    assert found.value == 10
    assert found.stderr == pytest.approx(math.sqrt(1 + 1 + 1e4 * 38 / 199 / 200))
    lost = Sample(theirs.numbers, (None, None), 10)
    assert difference("best_accuracy", ours, lost).stderr == pytest.approx(math.sqrt(2 + 3.4**2 + 3.5**2))


def test_with_several_seeds_a_difference_of_lambda_max_is_without_its_bias_too() -> None:
    """Both first seeds were measured on the same samples: 3 and 1 too high there, known to 0.1 and 0.2."""

    def measured(value: float, bias: float, residual: float) -> HessianRecord:
        entry = {"value": value, "residual": residual, "stderr_data": 1.0, "bias_data": bias}
        entry["batches"] = [value] * 3  # type: ignore[assignment]
        return HessianRecord.read(curvature(batch_sizes=[4, 4, 4], lambda_max=entry))

    ours = Sample((Number(23.0, 1.0), Number(25.0, 1.0)), (measured(23.0, 3.0, 0.1), None), 10)
    theirs = Sample((Number(31.0, 1.0), Number(33.0, 1.0)), (measured(31.0, 1.0, 0.2), None), 10)
    found = difference("lambda_max", ours, theirs)
    assert found.value == pytest.approx(24 - 32 - (3 - 1))
    assert found.bound == pytest.approx(0.1 + 0.2)
    assert found.stderr == pytest.approx(math.sqrt(1 + 1))
    single = Sample(ours.numbers[:1], ours.records[:1], 10)
    spread = spread_between_seeds(column("lambda_max", A=theirs), "", "lambda_max")
    assert difference("lambda_max", single, theirs, spread).value == pytest.approx(23 - 32 - 2)
