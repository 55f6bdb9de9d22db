from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.figures.text.comparison_table import comparison_table
from fedscope.figures.text.hessian_table import all_rows, hessian_table
from fedscope.records.hessian_record import HessianRecord

PROBLEM = {"model": "resnet8", "dataset": "digits", "samples": 512, "operator": "hessian", "reading": "paper"}
CROSS: dict[str, Any] = {
    "clients": 10,
    "pairs": "distinct",
    "H_N": {
        "tensor": {"value": 12.3, "stderr": 0.45},
        "parameter": {"value": 0.0123, "stderr": 0.00045},
    },
    "H_D": {"tensor": {"value": 0.9, "stderr": 0.01}, "parameter": {"value": None, "stderr": None}},
}


def _record(run: str | None = "fedavg", **changes: Any) -> HessianRecord:
    record: dict[str, Any] = {
        "schema": "fedscope/hessian/1",
        "checkpoint": {"path": "/runs/x/final.pt", "sha256": "0", "run": run, "round": 25},
        "problem": dict(PROBLEM),
        "lambda_max": {"value": 45.678, "residual": 0.0021, "stderr_data": 1.23},
        "trace": {"value": 812.3, "stderr_probe": 4.4, "stderr_data": 15.2, "probes": 100},
        "eigenvalues": [],
        "density": None,
        "cross_client": None,
    }
    return HessianRecord.read(record | changes)


def test_markdown_without_clients() -> None:
    expected = """\
**Hessian of the loss**

| checkpoint | λ_max ± data | trace ± probe ± data |
| --- | ---: | ---: |
| fedavg@25 | 45.7 ± 1.2 | 812 ± 4.4 ± 15 |
| final.pt | not finite ± – | not finite ± – ± – |

- model resnet8, dataset digits, samples 512, operator hessian
- ± data: standard error over the samples, at the eigenvector found on them (λ_max itself is biased \
upward on few samples); ± probe: of the trace estimate, over its random probes; ± –: not known, as of \
one batch or by another engine
- λ_max: residual ‖Hv − λv‖ at most 0.002100
"""
    broken = _record(
        None,
        lambda_max={"value": None, "residual": None, "stderr_data": None},
        trace={"value": None, "stderr_probe": None, "stderr_data": None},
    )
    assert hessian_table([_record(), broken]).markdown() == expected


def test_clients_add_four_columns_and_their_convention() -> None:
    table = hessian_table([_record(cross_client=CROSS), _record("feddyn")])
    assert table.columns[-4:] == ("H_N (tensor)", "H_N (parameter)", "H_D (tensor)", "H_D (parameter)")
    assert table.rows[0][-4:] == ("12.30 ± 0.45", "0.01230 ± 0.00045", "0.900 ± 0.010", "unresolved")
    assert table.rows[1][-4:] == ("–",) * 4
    assert table.notes[1] == (  # what a reader must know stands where two notes alone are shown
        "unresolved: out of its range, or its 95 % interval excludes nothing; raise "
        "--client-probes (the value is in --json)"
    )
    assert (
        table.notes[-1]
        == "H_N, H_D: mean over distinct pairs of 10 clients, ± standard error over the probes"
    )
    stopped = hessian_table([_record(cross_client=CROSS | {"converged": False})])
    assert "raise --client-max-probes " in stopped.notes[1]


def test_of_all_rows_that_the_clients_hold_is_told_and_compared() -> None:
    def record(H_D: float) -> HessianRecord:
        whole = {"value": H_D, "stderr": 0.03, "resolved": True}
        populations = {
            "H_N": {"tensor": whole, "parameter": whole},
            "H_D": {"tensor": whole, "parameter": None},
        }
        return _record(cross_client=CROSS | {"populations": populations})

    assert all_rows(_record(cross_client=CROSS)) is None
    assert all_rows(record(0.7)) == (
        "of all rows that the clients hold, ± the samples too: H_N (tensor) 0.700 ± 0.030, "
        "H_N (parameter) 0.700 ± 0.030, H_D (tensor) 0.700 ± 0.030, H_D (parameter) –"
    )
    as_in_the_table = _record(cross_client=CROSS | {"populations": {n: CROSS[n] for n in ("H_N", "H_D")}})
    assert all_rows(as_in_the_table) is None
    table = comparison_table([record(0.7), record(0.5)])
    assert dict(zip(table.columns, table.rows[0], strict=True))["H_D (tensor)"] == "−0.200 ± 0.042: lower"
    one_has_none = comparison_table([record(0.7), _record(cross_client=CROSS)])
    columns = dict(zip(one_has_none.columns, one_has_none.rows[0], strict=True))
    assert columns["H_D (tensor)"] == "0.000 ± 0.014: undecided"


def test_what_is_not_resolved_shows_no_number_and_no_verdict() -> None:
    good = {"value": 0.9, "stderr": 0.01, "resolved": True}
    bad = {"value": -11.2, "stderr": 7.7, "interval": [-1.0, 1.0], "resolved": False}
    cross = CROSS | {"H_D": {"tensor": good, "parameter": bad}, "H_N": CROSS["H_N"]}
    records = [_record(run, cross_client=cross, batch_sizes=[512]) for run in ("a", "b")]
    assert hessian_table(records).rows[0][-2:] == ("0.900 ± 0.010", "unresolved")
    table = comparison_table(records)
    assert dict(zip(table.columns, table.rows[0], strict=True))["H_D (parameter)"] == "unresolved"
    assert dict(zip(table.columns, table.rows[0], strict=True))["H_D (tensor)"] == "0.000 ± 0.014: undecided"


def test_both_conventions_are_told_apart() -> None:
    own = _record(cross_client=CROSS | {"pairs": "all_including_self"})
    notes = hessian_table([_record(cross_client=CROSS), own]).notes
    assert sum("distinct pairs" in note for note in notes) == 1
    assert sum("itself included" in note for note in notes) == 1


def test_a_setting_that_differs_becomes_a_column() -> None:
    code = _record("code", problem=PROBLEM | {"reading": "code", "bn": "batch"})
    table = hessian_table([_record(), code])
    assert table.columns[:3] == ("checkpoint", "reading", "bn")
    assert [row[1:3] for row in table.rows] == [("paper", "–"), ("code", "batch")]
    assert "reading" not in table.notes[0]


def test_names_cannot_break_the_markdown() -> None:
    lines = hessian_table([_record("a|b\nc\\")]).markdown().splitlines()
    assert lines[4].startswith(r"| a\|b c\\@25 |")


def test_a_table_of_no_record_is_refused() -> None:
    with pytest.raises(UserError, match="no record"):
        hessian_table([])


def test_ones_own_data_is_told_no_setting_that_it_does_not_have() -> None:
    usual = {"bn": "eval", "engine": "fedscope", "reading": "paper"}
    own = {"samples": 9, "split": None, "method": None, **usual}
    assert hessian_table([_record(problem=own)]).notes[0] == "samples 9"
    (note, *_) = hessian_table([_record(problem=own | {"split": "train", "bn": "batch"})]).notes
    assert note == "samples 9, split train, bn batch, engine fedscope, reading paper"


def test_the_effective_number_says_what_it_is_where_all_see_it() -> None:
    top = {"value": 1.0, "residual": 0.0, "stderr_data": 0.1, "effective_samples": 7.0}
    table = hessian_table([_record(lambda_max=top)])
    assert any("n_eff: effective number of samples" in note for note in table.notes[:2])


def test_a_whole_split_leaves_no_error_but_the_residual() -> None:
    whole = _record(
        problem={**PROBLEM, "population": 512},
        lambda_max={"value": 45.678, "residual": 0.0021, "stderr_data": 0.0},
    )
    table = hessian_table([whole])
    assert "45.6780" in table.rows[0]
    assert any("no ± data where the samples are the whole split" in note for note in table.notes)
    assert not any("whole split" in note for note in hessian_table([_record()]).notes)
