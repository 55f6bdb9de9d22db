import math
from dataclasses import replace

import pytest

from fedscope.records.artefact import Claim
from fedscope.records.hessian_record import HessianRecord
from fedscope.reproduce.artefacts.claims import Printed, Statement
from fedscope.reproduce.artefacts.claims import judge as judge_all
from fedscope.reproduce.artefacts.row_differences import Sample, Samples, difference
from fedscope.reproduce.recipes.table_quantities import Number, from_record, mean
from tests.figures.records import curvature


def one(value: float, error: float | None = None, round: int = 10) -> Sample:
    return Sample((Number(value, error),), (None,), round)


def many(*values: float, round: int = 10) -> Sample:
    return Sample(tuple(Number(value, 0.1) for value in values), (None,) * len(values), round)


def table(quantity: str = "accuracy", *, column: str = "", **rows: Sample) -> Samples:
    return {(row, column, quantity): sample for row, sample in rows.items()}


def judge(text: str, samples: Samples, columns: list[str]) -> Claim:
    return judge_among(text, samples, columns, list(dict.fromkeys(row for row, _, _ in samples)))


def judge_among(
    text: str, samples: Samples, columns: list[str], rows: list[str], printed: Printed | None = None
) -> Claim:
    (found,) = judge_all([text], samples, columns, rows, [printed or {}])
    return found


def named(quantity: str, rows: dict[str, Sample]) -> Samples:
    return {(row, "", quantity): sample for row, sample in rows.items()}


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        (53.0, "holds"), (52.05, "holds"), (51.85, "undecided"), (49.5, "undecided"), (48.15, "undecided"),
        (47.95, "does not hold"),
    ],
)  # fmt: skip
def test_the_interval_of_the_difference_decides(theirs: float, verdict: str) -> None:
    """√2·0.7 ≈ 0.99 is the difference's error, and 1.96 of it, 1.94, the border."""
    found = judge("A < B in accuracy", table(A=one(50, 0.7), B=one(theirs, 0.7)), [""])
    assert found.verdict == verdict
    mirrored = judge("B > A in accuracy", table(A=one(50, 0.7), B=one(theirs, 0.7)), [""])
    assert mirrored.verdict == verdict


def test_seeds_decide_where_there_are_some() -> None:
    """Welch on (50, 52, 54) and (40, 41, 42), t = 11/√(4/3 + 1/3) = 8.5, beside the test samples' errors."""
    found = judge("A > B in accuracy", table(A=many(50, 52, 54), B=many(40, 41, 42)), [""])
    assert found.verdict == "holds"
    assert "(one seed)" not in found.evidence[0]
    gap = difference("accuracy", many(50, 52, 54), many(40, 41, 42))
    assert gap.value == pytest.approx(11)
    assert gap.stderr == pytest.approx(math.sqrt(4 / 3 + 1 / 3 + 2 * 0.1**2))
    assert gap.data[1] == pytest.approx((5 / 3) ** 2 / ((4 / 3) ** 2 / 2 + (1 / 3) ** 2 / 2))
    near = judge("A > B in accuracy", table(A=many(50, 52, 54), B=many(47, 52, 52)), [""])
    assert near.verdict == "undecided"


def test_the_mean_over_seeds_has_their_standard_error() -> None:
    average, error, dof = mean([Number(1.0, 5.0), Number(3.0, 5.0)])
    assert (average, dof) == (2.0, 1)
    assert error == pytest.approx(1.0)
    assert mean([Number(1.0, 5.0, 7)]) == (1.0, 5.0, 7)


def test_lowest_means_lower_than_every_other() -> None:
    rows = {"A": one(1, 0.1), "B": one(2, 0.1), "C": one(3, 0.1)}
    assert judge("A lowest in trace", named("trace", rows), [""]).verdict == "holds"
    assert judge("B lowest in trace", named("trace", rows), [""]).verdict == "does not hold"
    assert judge("C highest in trace", named("trace", rows), [""]).verdict == "holds"
    rows["B"] = one(1.05, 0.1)
    found = judge("A lowest in trace", named("trace", rows), [""])
    assert found.verdict == "undecided"
    assert "A − B" in found.evidence[0]


def test_the_statements_of_a_page_are_judged_together() -> None:
    """2.2 standard errors are enough for one statement and not for three; a pair of rows counts once."""
    rows = [*"ABCDEF"]
    samples = table("trace", A=one(0, 0), B=one(2.2, 1), C=one(0, 0), D=one(2.2, 1), E=one(0, 0), F=one(9, 1))
    texts = ["A < B in trace", "C < D in trace", "E < F in trace"]
    alone = [judge_all([text], samples, [""], rows)[0].verdict for text in texts]
    together = [claim.verdict for claim in judge_all(texts, samples, [""], rows)]
    assert alone == ["holds"] * 3
    assert together == ["undecided", "undecided", "holds"]
    evidence = [claim.evidence[0] for claim in judge_all(texts, samples, [""], rows)]
    assert ["among 3 verdicts)" in text for text in evidence] == [True, True, False]
    twice = judge_all(["A < B in trace", "B > A in trace"], samples, [""], rows)
    assert [claim.verdict for claim in twice] == ["holds"] * 2


def test_the_ends_are_among_the_paper_s_rows() -> None:
    samples = table("trace", A=one(1, 0.1), B=one(2, 0.1), Ours=one(0.1, 0.1))
    assert judge_among("A lowest in trace", samples, [""], ["A", "B"]).verdict == "holds"
    assert judge_among("A lowest in trace", samples, [""], ["A", "B", "Ours"]).verdict == "does not hold"


def test_all_columns_must_bear_it_out() -> None:
    holds = table(column="x", A=one(1, 0.1), B=one(2, 0.1))
    open_ = table(column="y", A=one(1, 0.1), B=one(1, 0.1))
    against = table(column="z", A=one(2, 0.1), B=one(1, 0.1))
    assert judge("A < B in accuracy", {**holds, **open_}, ["x", "y"]).verdict == "undecided"
    found = judge("A < B in accuracy", {**holds, **open_, **against}, ["x", "y", "z"])
    assert found.verdict == "does not hold"
    assert [text[:2] for text in found.evidence] == ["x:", "y:", "z:"]


def test_what_has_no_error_or_no_row_is_undecided() -> None:
    assert judge("A < B in accuracy", table(A=one(1), B=one(9, 0.1)), [""]).verdict == "undecided"
    missing = judge("A < B in accuracy", table(A=one(1, 0.1)), [""])
    assert (missing.verdict, missing.evidence) == ("undecided", ("no value of B",))
    alone = judge_among("A lowest in accuracy", table(A=one(1, 0.1)), [""], ["A", "B", "C"])
    assert alone.evidence == ("no value of B and of C",)
    empty = Sample((Number(None, text="500+"),), (None,), 10)
    assert judge("A < B in accuracy", table(A=one(1, 0.1), B=empty), [""]).verdict == "undecided"


def test_a_rival_that_is_not_there_leaves_it_open() -> None:
    samples = table("trace", A=one(1, 0.1), B=one(2, 0.1))
    found = judge_among("A lowest in trace", samples, [""], ["A", "B", "Gone"])
    assert (found.verdict, found.evidence[0].endswith("; without Gone")) == ("undecided", True)
    assert judge_among("B lowest in trace", samples, [""], ["A", "B", "Gone"]).verdict == "does not hold"


def test_the_paper_s_own_numbers_come_first() -> None:
    samples = {
        **table(column="x", A=one(1, 0.1), B=one(2, 0.1)),
        **table(column="y", A=one(9, 0.1), B=one(2, 0.1)),
    }
    printed = {"x": {"A": 5.0, "B": 6.0}, "y": {"A": 6.5, "B": 6.0}}
    for text in ("A < B in accuracy", "A lowest in accuracy"):
        found = judge_among(text, samples, ["x", "y"], ["A", "B"], printed)
        assert found.verdict == "holds"
        assert found.evidence[1] == "y: not judged, since the paper's own numbers say otherwise"
        assert judge_among(text, samples, ["x", "y"], ["A", "B"]).verdict == "does not hold"
        assert judge_among(text, samples, ["y"], ["A", "B"], printed).verdict == "undecided"
    tied = {"x": {"A": 6.0, "B": 6.0}}
    assert judge_among("A < B in accuracy", samples, ["x"], ["A", "B"], tied).verdict == "holds"


def test_the_sum_of_eigenvalues_is_freed_of_its_bias() -> None:
    pairs = [
        {"value": 5.0, "residual": 0.0, "stderr_data": 0.5, "bias_data": 1.0},
        {"value": 3.0, "residual": 0.0, "stderr_data": 0.25},
    ]
    assert from_record("spectrum", HessianRecord.read(curvature(eigenvalues=pairs))) == Number(7.0, 0.75)


def test_other_rounds_do_not_compare() -> None:
    found = judge("A < B in trace", table("trace", A=one(1, 0.1, 150), B=one(9, 0.1, 500)), [""])
    assert found.verdict == "undecided"
    assert "after 150 rounds and 500 rounds" in found.evidence[0]


def test_other_training_data_do_not_compare() -> None:
    half, whole = frozenset({"half"}), frozenset({"whole"})

    def judged_on(ours: frozenset[str], theirs: frozenset[str]) -> Claim:
        rows = {"A": replace(one(1, 0.1), data=ours), "B": replace(one(9, 0.1), data=theirs)}
        return judge("A < B in trace", named("trace", rows), [""])

    assert judged_on(half, half).verdict == "holds"
    assert judged_on(half, frozenset()).verdict == "holds"  # an older run does not say on which
    for other in (whole, half | whole):
        assert judged_on(half, other).verdict == "undecided"
        assert "trained on different data" in judged_on(half, other).evidence[0]


def test_exact_counts_decide_without_errors() -> None:
    found = judge("A < B in macs", table("macs", A=one(1, 0.0), B=one(2, 0.0)), [""])
    assert (found.verdict, found.evidence) == ("holds", ("A − B = −1.000",))
    drift = judge("A < B in drift", table("drift", A=one(1, 0.0), B=one(2, 0.0)), [""])
    assert drift.verdict == "undecided"  # a training's number, exact for this one alone
    assert drift.evidence == ("A − B = −1.000, of no known error",)
    twice = [Sample((Number(value, 0.0),) * 2, (None, None), 10) for value in (1.0, 2.0)]
    assert judge("A < B in drift", table("drift", A=twice[0], B=twice[1]), [""]).verdict == "holds"
    several = judge("A < B in drift", table("drift", A=many(1, 1.1), B=many(9, 9.1)), [""])
    assert several.verdict == "holds"


def test_records_of_the_same_samples_are_paired() -> None:
    """The batches' own differences are all 1: their spread, and so the error, is 0."""

    def record(shift: float, *, last: float = 60.0, **changes: object) -> HessianRecord:
        batches = [10 + shift, 20 + shift, last + shift]
        entry = {"value": 30 + shift, "samples": [30 + shift] * 3, "batches": batches, "stderr_data": 15.0}
        content = curvature(
            batch_sizes=[4, 4, 4],
            lambda_max={**entry, "residual": 0.0},
            trace={**entry, "stderr_probe": 0.0},
        )
        return HessianRecord.read({**content, **changes})

    ours, theirs = (Sample((Number(v, 15.0),), (record(v - 30),), 5) for v in (30.0, 31.0))
    gap = difference("trace", ours, theirs)
    assert gap.value == pytest.approx(-1)
    assert gap.stderr == pytest.approx(0, abs=1e-9)
    apart = Sample((Number(31.0, 15.0),), (record(1, samples_sha256="b"),), 5)
    assert difference("trace", ours, apart).stderr == pytest.approx(15 * math.sqrt(2))
    # Differences of (0, 0, 3) have the standard error 1, beside the seeds' of (30, 32) and (31, 33), √2.
    many = Sample((Number(30.0, 15.0), Number(32.0, 15.0)), (record(0, last=63.0), None), 5)
    others = Sample((Number(31.0, 15.0), Number(33.0, 15.0)), (record(0), None), 5)
    assert difference("trace", many, others).stderr == pytest.approx(math.sqrt(2 + 1))


def test_statements_have_a_grammar() -> None:
    assert Statement.read("FedAvg+MAN < FedAvg in trace") == Statement("FedAvg+MAN", "trace", True, "FedAvg")
    assert Statement.read("GradAug (n = 2) highest in macs") == Statement(
        "GradAug (n = 2)", "macs", False, None
    )
    for wrong in ("A = B in trace", "A < B", "A < B in beauty"):
        with pytest.raises(ValueError, match="is no statement"):
            Statement.read(wrong)
