from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.figures.text.advice import advice
from fedscope.figures.text.comparison_table import comparison_table, surprises
from fedscope.figures.text.hessian_table import Table
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.saved_records import hessians

Json = dict[str, Any]


def _record(
    label: str,
    top: float,
    *,
    data: float = 0.4,
    probe: float = 9.0,
    residual: float = 0.01,
    bias: float | None = 0.0,
) -> Json:
    spread = [top - data, top + data]
    return {
        "schema": "fedscope/hessian/1", "eigenvalues": [], "density": None,
        "checkpoint": {"path": f"{label}.pt", "sha256": "0", "run": label, "round": 3},
        "samples_sha256": "s", "batch_sizes": [5, 5], "noise": 1e-4,
        "problem": {"samples": 10, "operator": "hessian", "reading": "paper"},
        "lambda_max": {
            "value": top, "residual": residual, "stderr_data": data, "batches": spread, "bias_data": bias,
        },
        "trace": {
            "value": 100.0, "stderr_probe": probe, "stderr_data": 2.0, "batches": [99.0, 101.0],
            "samples": [91.0, 109.0],
        },
        "cross_client": None,
    }  # fmt: skip


def _advice(record: Json) -> list[str]:
    return advice(HessianRecord.read(record))


def _compared(records: list[Json]) -> Table:
    return comparison_table(hessians(records))


def _surprises(records: list[Json]) -> list[str]:
    return surprises(hessians(records))


def test_the_dominating_error_is_named_with_its_mend() -> None:
    first, second = _advice(_record("a", 50.0))
    assert first.startswith("λ_max: most of its error is the samples (0.8 %)")
    assert "--samples" in first
    assert second.startswith("trace: most of its error is the probes (9 %)")
    assert "--trace-rtol" in second
    assert "--tol" in _advice(_record("a", 50.0, residual=3.0))[0]
    assert _advice(_record("a", 50.0, probe=1.0))[1].startswith("trace: most of its error is the samples")


def test_of_data_that_is_used_up_no_more_is_advised() -> None:
    record = _record("a", 50.0)
    record["problem"]["whole"] = True
    record["lambda_max"]["effective_samples"] = 3.0
    lines = _advice(record)
    assert any("they are all of your data" in line for line in lines)
    assert not any("more samples" in line for line in lines)


def test_a_small_error_needs_no_advice() -> None:
    record = _record("a", 50.0, data=0.04, probe=0.01)
    record["trace"]["stderr_data"] = 0.0
    assert _advice(record) == []


def test_an_error_that_is_not_known_is_not_judged() -> None:
    record = _record("a", 50.0)
    record["lambda_max"] |= {"value": None, "stderr_data": None, "residual": None}
    record["trace"] |= {"stderr_data": None, "stderr_probe": None}
    assert _advice(record) == []


def test_one_batch_leaves_the_largest_error_unknown() -> None:
    record = _record("a", 50.0)
    record["batch_sizes"] = [10]
    record["lambda_max"]["stderr_data"] = record["trace"]["stderr_data"] = None
    (line,) = _advice(record)
    assert "--batch-size" in line
    assert "most" not in line


def test_differences_are_to_the_first_and_carry_a_verdict() -> None:
    table = _compared([_record("a", 50.0), _record("b", 40.0), _record("c", 50.1)])
    assert table.title == "Difference to a@3"
    assert table.columns == ("checkpoint", "λ_max", "trace")
    assert "λ_max: without the upward bias of few samples" in table.notes[0]
    (b, lower, same), (c, unclear, _) = table.rows
    assert (b, c) == ("b@3", "c@3")
    assert lower.startswith("−10")
    assert lower.endswith(": lower")
    assert unclear.endswith(": undecided") or unclear.endswith(": higher")
    assert same.endswith(": undecided")


def test_a_difference_that_few_batches_leave_undecided_says_what_would_decide_it() -> None:
    one, other = _record("a", 50.0), _record("b", 40.0)
    other["lambda_max"]["batches"] = [35.0, 45.0]  # 10 ± 4.6 over two batches: the interval is 13 errors wide
    table = _compared([one, other])
    assert table.rows[0][1].endswith(": undecided (1 dof: p 0.27, 0.55 among 2 verdicts)")
    assert "dof degrees of freedom" in table.notes[1]
    assert "2 batches" in table.notes[1]
    assert "--batch-size" in table.notes[1]
    other["lambda_max"]["batches"] = [39.6, 40.4]
    one["trace"]["samples"] = other["trace"]["samples"] = [100.0, 100.0]
    assert "batches" not in " ".join(_compared([one, other]).notes)


def test_a_difference_that_a_bound_leaves_undecided_says_how_large_it_is() -> None:
    one, other = _record("a", 50.0), _record("b", 40.0, residual=12.0)
    one["trace"]["samples"] = other["trace"]["samples"] = [100.0, 100.0]
    table = _compared([one, other])
    assert table.rows[0][1].endswith(": undecided (up to 12 may be bias or inexactness)")
    assert "--samples" in table.notes[1]
    assert "--batch-size" not in " ".join(table.notes)
    other["lambda_max"]["residual"] = 0.01
    assert "residual" not in " ".join(_compared([one, other]).notes)


def test_a_comparison_needs_two() -> None:
    with pytest.raises(UserError, match="two or more"):
        _compared([_record("a", 1.0)])


def test_a_flattening_method_that_is_sharper_is_remarked_on_with_this_runs_numbers() -> None:
    plain, man, far = _record("a", 26.4), _record("b", 31.5), _record("c", 20.0)
    for record, method in ((plain, "fedavg"), (man, "fedavg+man"), (far, "fedavg+man")):
        record["problem"]["method"] = method
    (remark,) = _surprises([plain, man, far])
    assert remark.startswith("FedAvg+MAN is sharper here than FedAvg, λ_max by 5.1")
    assert remark in _compared([plain, man]).notes
    assert _surprises([man, plain]) == _surprises([plain, far]) == _surprises([plain]) == []
    plain["problem"]["method"] = man["problem"]["method"] = "fedprox"
    assert _surprises([plain, man]) == []


def test_an_unknown_bias_decides_nothing_but_of_all_there_are_there_is_none() -> None:
    one, other = (_record(name, top, bias=None) for name, top in (("a", 50.0), ("b", 40.0)))
    table = _compared([one, other])
    assert table.rows[0][1].endswith(": undecided (bias not known)")
    assert "the bias of few samples is not known of λ_max" in table.notes[1]
    assert "without the upward bias" not in table.notes[0]
    for record in (one, other):
        record["problem"]["population"] = 10
    assert _compared([one, other]).rows[0][1].endswith(": lower")


def test_finite_differences_are_in_the_difference_of_traces() -> None:
    one, other = _record("a", 50.0), _record("b", 50.0)
    other["trace"] |= {"value": 90.0, "batches": [89.0, 91.0], "samples": [81.0, 99.0]}
    assert _compared([one, other]).rows[0][2].endswith(": lower")
    other["trace"]["product_error"] = 11.0
    assert _compared([one, other]).rows[0][2].endswith(": undecided (up to 11 may be bias or inexactness)")


def test_one_batch_whose_error_is_known_gets_the_usual_advice() -> None:
    record = _record("a", 50.0)
    record["batch_sizes"] = [10]
    assert all("--batch-size" not in line for line in _advice(record))
    assert _advice(record)
