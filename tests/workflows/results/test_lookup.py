import json
from dataclasses import fields, replace
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from fedscope.records.hessian_record import HessianRecord
from fedscope.workflows.curvature.record import problem_entry
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.results import lookup
from fedscope.workflows.results.lookup import (
    Criteria,
    Part,
    asked_of,
    earlier,
    lacking,
    meets,
    trimmed,
)

UPLOADS = {"0000.pt": "a", "0001.pt": "b"}
PROBLEM_OF = {"samples": 1024, "seed": 0}
FOUND = Criteria("f0", PROBLEM_OF, None, "s", {})  # which the records here meet


def _estimate(value: float, reach: float) -> dict[str, Any]:
    return {"value": value, "stderr": reach / 2, "interval": [value - reach, value + reach]}


def _value(value: float, residual: float = 0.001) -> dict[str, Any]:
    return {"value": value, "residual": residual, "stderr_data": None, "certified": True}


def _trace(
    value: float, stderr: float | None, probes: int, *, converged: bool | None = None
) -> dict[str, Any]:
    found = {"value": value, "stderr_probe": stderr, "stderr_data": None, "probes": probes}
    return {**found, "converged": converged}


DENSITY = {
    "grid": [0.0, 1.0, 2.0], "density": [0.0, 1.0, 0.0], "sigma": 0.1, "negative_mass": _estimate(0.1, 0.01),
}  # fmt: skip


def _record(**changes: Any) -> HessianRecord:
    values = [_value(10.0 - i) for i in range(3)]
    mean = {"tensor": _estimate(0.5, 0.01), "parameter": _estimate(0.5, 0.01)}
    content = {
        "schema": "fedscope/hessian/1",
        "checkpoint": {"sha256": "f0"},
        "samples_sha256": "s",
        "problem": PROBLEM_OF,
        "lambda_max": values[0],
        "eigenvalues": values,
        "both_ends": False,
        "converged": True,
        "layers": None,
        "trace": _trace(100.0, 1.0, 20, converged=True),
        "density": DENSITY,
        "cross_client": {
            "clients": 2, "weights": "client", "data": "own", "pairs": "distinct", "probes": 32,
            "converged": True, "uploads": UPLOADS, "overlap_k": None, "H_N": mean, "H_D": mean,
        },
    }  # fmt: skip
    return HessianRecord.read(content | changes)


def _missing(
    record: HessianRecord, request: Request, uploads: dict[str, str], *, more_probes: bool = False
) -> set[Part]:
    return lacking(record, request, replace(FOUND, uploads=uploads, more_probes=more_probes))


def json_of(record: HessianRecord) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(record.to_json()))
    return found


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        (Request(top_k=3, density=True, clients=True), set()),
        (Request(top_k=4), {"eigenvalues"}),
        (Request(top_k=4, as_kept=True), set()),
        (Request(tol=1e-5, as_kept=True), {"eigenvalues"}),
        (Request(both_ends=True), {"eigenvalues"}),
        (Request(tol=1e-5), {"eigenvalues"}),
        (Request(trace_rtol=0.001), {"trace"}),
        (Request(probes=20), set()),
        (Request(probes=10), {"trace"}),
        (Request(layers=True), {"layers"}),
        (Request(clients=True, cross_client=CrossClientRequest(weights="global")), {"cross_client"}),
        (Request(clients=True, cross_client=CrossClientRequest(rtol=0.001)), {"cross_client"}),
        (Request(clients=True, cross_client=CrossClientRequest(probes=16)), {"cross_client"}),
        (Request(clients=True, cross_client=CrossClientRequest(data="global")), {"cross_client"}),
        (Request(clients=True, cross_client=CrossClientRequest(overlap=2)), {"cross_client"}),
    ],
)
def test_a_part_is_missing_where_less_was_measured_than_is_asked(
    request_: Request, missing: set[str]
) -> None:
    assert _missing(_record(), request_, UPLOADS) == missing


def test_a_fixed_number_of_probes_may_be_a_least_number() -> None:
    request = Request(probes=10, clients=True, cross_client=CrossClientRequest(probes=16))
    assert _missing(_record(), request, UPLOADS) == {"trace", "cross_client"}
    assert _missing(_record(), request, UPLOADS, more_probes=True) == set()
    assert _missing(_record(), Request(probes=21), {}, more_probes=True) == {"trace"}


def test_of_several_answers_the_most_precise_is_given_whatever_the_order() -> None:
    wide, narrow = (
        _record(trace={**_trace(value, 1.0, 20, converged=True), "interval": [value - reach, value + reach]})
        for value, reach in ((99.0, 9.0), (101.0, 2.0))
    )
    for records in permutations([wide, narrow, _record()]):
        found = earlier(records, Request(top_k=3), FOUND)
        assert found is narrow


def test_every_eigenvalue_that_is_asked_for_has_a_small_residual() -> None:
    values = [_value(10.0), _value(9.0, 0.5)]
    loose = _record(eigenvalues=values)
    assert _missing(loose, Request(), {}) == set()
    assert _missing(loose, Request(top_k=2), {}) == {"eigenvalues"}
    lower = _record(eigenvalues=values, both_ends=True)
    assert _missing(lower, Request(both_ends=True), {}) == {"eigenvalues"}


@pytest.mark.parametrize("part", ["layers", "blocks"])
def test_the_value_of_each_block_is_as_sure_as_is_asked(part: Part) -> None:
    """By its own size, not that of the largest of all."""
    values = [{"name": "fc", **_value(9.0, 0.001)}, {"name": "out", **_value(0.1, 0.001)}]
    record = _record(**{part: values})
    asked: dict[str, Any] = {part: True}
    assert _missing(record, Request(tol=0.02, **asked), {}) == set()
    assert _missing(record, Request(tol=0.002, **asked), {}) == {part}


def test_so_is_that_of_the_preconditioned_curvature() -> None:
    adaptive = {
        "optimizer": "fedadam", "lambda_max": _value(2.0, 0.01), "converged": True, "smallest": 0.1,
        "largest": 1.0, "beta1": 0.9, "gamma": 1.0, "steps": 3, "rate": 0.1, "stable": 20.0,
        "state_sha256": "a", "matvecs": 9,
    }  # fmt: skip
    record = _record(preconditioned=adaptive)
    assert _missing(record, Request(preconditioned=True, tol=0.01), {}) == set()
    assert _missing(record, Request(preconditioned=True, tol=0.001), {}) == {"preconditioned"}


def test_a_value_that_began_at_a_neighbours_is_none_that_is_certified() -> None:
    first, second = _value(10.0), {**_value(9.0), "certified": False}
    warm = _record(lambda_max=first, eigenvalues=[first, second])
    assert _missing(warm, Request(top_k=2), {}) == {"eigenvalues"}
    assert _missing(warm, Request(top_k=1), {}) == set()
    assert _missing(warm, Request(top_k=2, warm=True), {}) == set()
    assert _missing(_record(), Request(warm=True), {}) == set()


def test_a_trace_that_did_not_converge_is_made_again() -> None:
    trace = _trace(100.0, 1.0, 20)  # by published code
    assert _missing(_record(trace=trace), Request(), {}) == {"trace"}


@pytest.mark.parametrize("symbol", ["H_N", "H_D"])
def test_both_means_over_clients_are_as_sure_as_is_asked(symbol: str) -> None:
    wide = {"tensor": _estimate(0.5, 0.4), "parameter": _estimate(0.5, 0.4)}
    cross = json_of(_record())["cross_client"] | {symbol: wide}
    assert _missing(_record(cross_client=cross), Request(clients=True), UPLOADS) == {"cross_client"}


def test_other_uploads_are_other_clients_and_deleted_ones_the_same() -> None:
    request = Request(clients=True)
    assert _missing(_record(), request, {**UPLOADS, "0001.pt": "c"}) == {"cross_client"}
    assert _missing(_record(), request, {"0000.pt": "a"}) == set()
    older = json_of(_record())["cross_client"]
    del older["uploads"]
    assert _missing(_record(cross_client=older), request, UPLOADS) == {"cross_client"}


def test_few_probes_are_not_trusted_with_a_small_error() -> None:
    """Those of the first of the trace's two stages are."""
    enough = _trace(100.0, 0.1, 10, converged=True)
    assert _missing(_record(trace=enough), Request(), {}) == set()
    trace = _trace(100.0, 0.1, 4, converged=True)
    assert _missing(_record(trace=trace), Request(), {}) == {"trace"}


def test_the_fullest_record_is_taken_and_cut_to_what_was_asked() -> None:
    plain = _record(density=None, cross_client=None)
    request = Request(top_k=2, density=True)
    full = _record()
    for records, record, parts in (([plain, full], full, set[str]()), ([plain], plain, {"density"})):
        assert earlier(records, request, FOUND) is record
        assert lacking(record, request, FOUND) == parts
    poor = _record(converged=False, trace=_trace(1.0, None, 2))
    assert earlier([poor], request, FOUND) is None
    cut = json_of(trimmed(full, request))
    assert [entry["value"] for entry in cut["eigenvalues"]] == [10.0, 9.0]
    assert (cut["density"], cut["cross_client"]) == (DENSITY, None)
    ends = _record(both_ends=True, eigenvalues=[_value(v) for v in (9.0, 8.0, -1.0, -2.0)])
    assert [one.value for one in trimmed(ends, Request(both_ends=True)).eigenvalues] == [9, -2]
    assert [one.value for one in trimmed(ends, Request()).eigenvalues] == [9]


def test_a_question_gets_its_own_answer_whatever_more_was_asked_since() -> None:
    own = _record(density=None, cross_client=None, eigenvalues=[_value(10.0)])
    more = _record(density=None, cross_client=None, eigenvalues=[_value(10.0), _value(9.0)])
    fuller = _record(cross_client=None, eigenvalues=[_value(10.0)])
    for records in permutations((more, own, fuller)):
        assert earlier(records, Request(), FOUND) is own
        assert earlier(records, Request(top_k=2, as_kept=True), FOUND) is more
    assert trimmed(own, Request()).to_json() == own.to_json()


def test_a_record_is_of_a_problem_by_its_weights_samples_and_entries() -> None:
    assert meets(_record(problem={**PROBLEM_OF, "loss": None, "threads": 3}), FOUND)
    assert not meets(_record(), replace(FOUND, sha256="v"))
    for other in ({"seed": 1}, {"loss": "m:l"}, {"augmented": True}, {"parameters": "fc*"}):
        assert not meets(_record(problem=PROBLEM_OF | other), FOUND), other
    assert not meets(_record(), replace(FOUND, samples="t"))
    assert not meets(_record(samples_sha256=None), FOUND)
    assert len(lookup.PARTS) == 7


def test_a_record_without_a_trace_answers_for_lambda_max_alone() -> None:
    alone, whole, asked = _record(trace=None), _record(), Request(only="lambda_max")
    assert not _missing(alone, asked, UPLOADS)
    assert _missing(alone, Request(), UPLOADS) == {"trace"}
    assert not _missing(whole, asked, UPLOADS)
    assert trimmed(whole, asked).trace is None
    assert earlier([alone, whole], asked, FOUND) is alone
    assert earlier([whole, alone], Request(), FOUND) is whole
    assert earlier([_record(converged=False)], asked, FOUND) is None


def test_code_without_a_name_is_known_by_its_operator() -> None:
    own = replace(FOUND, operator="o")
    for operator, found in (("o", True), ("p", False), (None, False)):
        assert meets(_record(operator_sha256=operator), own) == found
        assert meets(_record(operator_sha256=operator), FOUND)


def test_an_answer_is_of_the_same_weights_and_version() -> None:
    record = _record(versions={"fedscope": "1"})
    asked = replace(FOUND, version="1")
    for wanted, found in (
        (asked, True),
        (replace(asked, version=None), True),
        (replace(asked, version="2"), False),
        (replace(asked, sha256="v"), False),
        (replace(asked, problem=PROBLEM_OF | {"samples": 64}), False),
    ):
        assert (earlier([record], Request(), wanted) is not None) == found, wanted
    assert earlier([record], Request(reading="code"), asked) is None


CLIENTS: dict[str, Any] = {
    "weights": "global", "data": "global", "pairs": "all_including_self", "probes": 16, "rtol": 0.001,
    "aim": "tensor", "overlap": 2,
}  # fmt: skip
PARTS: dict[str, Any] = {
    "top_k": 4, "both_ends": True, "layers": True, "blocks": True, "tol": 1e-6, "probes": 7,
    "trace_rtol": 1e-4, "density": True, "preconditioned": True, "clients": True,
}  # fmt: skip
PROBLEM: dict[str, Any] = {
    "reading": "code", "engine": "power", "operator": "ggn", "products": "finite-differences",
    "parameters": ("*.bias",), "bn": "batch",
}  # fmt: skip
ELSEWHERE = {
    CrossClientRequest: {"max_probes"},  # where the search ends, not what it is for
    Request: {"only", "warm", "as_kept", "influence", "cross_client", "resampling", "versions"},
}
"""Options that a kept result does not depend on, or that other tests have."""


@pytest.mark.parametrize(("kind", "tables"), [(CrossClientRequest, [CLIENTS]), (Request, [PARTS, PROBLEM])])
def test_the_tables_have_every_option(kind: Any, tables: list[dict[str, Any]]) -> None:
    known = {name for table in tables for name in table} | ELSEWHERE[kind]
    assert {field.name for field in fields(kind)} == known


@pytest.mark.parametrize("option", CLIENTS)
def test_clients_compared_otherwise_are_not_those_that_were_asked_for(option: str) -> None:
    mean = {"tensor": _estimate(0.5, 0.4), "parameter": _estimate(0.5, 0.01)}
    cross = _record().cross_client
    assert cross
    record = _record(cross_client=cross.to_json() | {"H_N": mean, "H_D": mean})
    asked = CrossClientRequest("client", "own", "distinct")
    assert not _missing(record, Request(clients=True, cross_client=asked), UPLOADS)
    other = replace(asked, **{option: CLIENTS[option]})
    assert _missing(record, Request(clients=True, cross_client=other), UPLOADS) == {"cross_client"}


@pytest.mark.parametrize("option", PARTS)
def test_a_part_that_was_measured_otherwise_or_not_at_all_is_missing(option: str) -> None:
    record = _record(density=None, cross_client=None)
    assert not _missing(record, Request(), UPLOADS)
    assert _missing(record, replace(Request(), **{option: PARTS[option]}), UPLOADS)


@pytest.mark.parametrize("option", PROBLEM)
def test_another_operator_is_another_problem(option: str) -> None:
    problem: Any = SimpleNamespace(entry=lambda **how: how)
    other = replace(Request(), **{option: PROBLEM[option]})
    assert asked_of(problem_entry(problem, other)) != asked_of(problem_entry(problem, Request()))
