"""Paired differences of two records: against the Hessian of the difference of the two losses."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import t as student

from fedscope.errors import UserError
from fedscope.landscape import Hessian, orthogonal, trace
from fedscope.records.differences import Difference, compared, differences, judged
from fedscope.records.saved_records import hessians
from fedscope.statistics.standard_errors import data_stderr
from tests.landscape.cases import Case, mlp

Json = dict[str, Any]


def _record(**parts: Any) -> Json:
    """A record as ``measure`` makes it, as far as comparisons read it."""
    empty = {"value": 1.0, "batches": [1.0, 1.0], "samples": []}
    return {
        "schema": "fedscope/hessian/1", "checkpoint": {"sha256": "0"}, "eigenvalues": [], "density": None,
        "samples_sha256": "s", "batch_sizes": [5, 5], "problem": {"samples": 10, "operator": "hessian"},
        "lambda_max": empty, "trace": empty, "cross_client": None, **parts,
    }  # fmt: skip


def _differences(*records: Json) -> list[Difference]:
    top, trace = (
        {"residual": 0.0, "stderr_data": None, "bias_data": 0.0},
        {"stderr_probe": None, "stderr_data": None},
    )
    reference, other = hessians(
        [{**one, "lambda_max": top | one["lambda_max"], "trace": trace | one["trace"]} for one in records]
    )
    return differences(reference, other)


def _moved(case: Case) -> Case:
    model = copy.deepcopy(case.model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.1)
    return Case(case.name, model, case.loss_fn, case.inputs, case.targets, case.batch_size)


def _batch_traces(case: Case) -> list[float]:
    forms = [
        torch.stack([z @ Hessian(case.model, case.loss_fn, type(case.batches)(x, y)).matvec(z) for z in eye])
        for x, y in case.batches
        for eye in [torch.eye(case.operator.shape[0], dtype=torch.float64)]
    ]
    return [float(part.sum()) for part in forms]


def test_a_traces_difference_is_the_trace_of_the_difference() -> None:
    here, there = mlp(), _moved(mlp())
    exact = trace(there.operator + (-1) * here.operator, probes=51, sampler=orthogonal)
    records = [
        _record(
            batch_sizes=list(case.batches.sizes),
            lambda_max={"value": 0.0, "batches": [0.0] * 3},
            trace={"value": float(case.dense().trace()), "batches": _batch_traces(case), "samples": []},
        )
        for case in (here, there)
    ]
    found = {difference.quantity: difference for difference in _differences(*records)}["trace"]
    assert found.value == pytest.approx(exact.value, rel=1e-9)
    assert found.data[0] == pytest.approx(exact.stderr_data, rel=1e-9)
    assert found.probe[0] == 0
    back = {difference.quantity: difference for difference in _differences(*records[::-1])}["trace"]
    assert back.value == -found.value
    assert back.data == found.data
    alone = [data_stderr(torch.tensor(r["trace"]["batches"]), r["batch_sizes"]) for r in records]
    assert found.data[0] < 0.5 * math.hypot(*alone)  # what the pairing is for


def test_probes_are_paired_as_far_as_both_have_them() -> None:
    generator = torch.Generator().manual_seed(0)
    shared, m, n = 2000, 12, 30
    values = []
    claimed = []
    for _ in range(shared):
        common = torch.randn(n, generator=generator, dtype=torch.float64)
        mine = common[:m] + 0.3 * torch.randn(m, generator=generator, dtype=torch.float64)
        yours = 2 * common + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
        entries = [
            {"value": float(x.mean()), "batches": [0.0, 0.0], "samples": x.tolist()} for x in (mine, yours)
        ]
        found = _differences(_record(trace=entries[0]), _record(trace=entries[1]))[1]
        values.append(found.value)
        claimed.append(found.probe[0] ** 2)
    truth = float(torch.tensor(values).var())
    assert sum(claimed) / shared == pytest.approx(truth, rel=0.12)


def test_verdicts() -> None:
    def verdict(gap: float) -> str | None:
        steady = {"value": 10.0, "batches": [9.9, 10.1], "samples": []}
        moved = {"value": 10 + gap, "batches": [9.9 + gap + 0.01, 10.1 + gap - 0.01], "samples": []}
        return _differences(_record(lambda_max=steady), _record(lambda_max=moved))[0].verdict

    assert verdict(-5) == "lower"
    assert verdict(5) == "higher"
    assert verdict(0.01) == "undecided"
    single = _record(batch_sizes=[10], lambda_max={"value": 1.0, "batches": [1.0]})
    assert _differences(single, single)[0].verdict == "undecided"  # no error bar, no verdict


@pytest.mark.parametrize(("errors", "verdict"), [(1.8, "undecided"), (2.1, "higher")])
def test_a_verdict_leaves_five_per_cent_to_chance(errors: float, verdict: str) -> None:
    """With many batches 1.96 standard errors decide; at a level of 90 % 1.8 of them would."""
    sizes, step = [5] * 400, 0.1
    steady = {"value": 10.0, "batches": [10.0] * 400, "samples": []}
    stderr = data_stderr(torch.tensor([0.0, step] * 200), sizes)
    gap = errors * stderr
    moved = {
        "value": 10.0 + gap,
        "batches": [10.0 + gap - step / 2, 10.0 + gap + step / 2] * 200,
        "samples": [],
    }
    records = [_record(batch_sizes=sizes, lambda_max=entry) for entry in (steady, moved)]
    assert _differences(*records)[0].verdict == verdict


def test_unlike_records_are_refused() -> None:
    with pytest.raises(UserError, match="same samples"):
        _differences(_record(), _record(samples_sha256="other"))
    with pytest.raises(UserError, match="same quantity"):
        _differences(_record(), _record(problem={"samples": 10, "operator": "ggn"}))


def test_records_printed_together_have_their_differences_to_the_first() -> None:
    steady = {
        "value": 10.0, "residual": 0.0, "stderr_data": None, "batches": [9.9, 10.1], "bias_data": 0.0,
    }  # fmt: skip
    traced = {"value": 1.0, "stderr_probe": None, "stderr_data": None, "batches": [1.0, 1.0], "samples": []}
    moved = {**steady, "value": 5.0, "batches": [4.91, 5.09]}
    far = _record(lambda_max=steady, trace=traced, samples_sha256="other")
    near = _record(lambda_max=moved, trace=traced)
    reference, other, elsewhere = compared(hessians([_record(lambda_max=steady, trace=traced), near, far]))
    assert reference.differences == elsewhere.differences == ()
    first, second = other.differences
    assert (first.quantity, first.value, first.verdict, first.to) == ("λ_max", -5, "lower", "0")
    assert first.interval
    assert first.interval[0] < -5 < first.interval[1] < 0
    assert (second.quantity, second.value, second.verdict) == ("trace", 0, "undecided")
    assert other.to_json()["differences"][0]["stderr"] == first.stderr


@pytest.mark.parametrize("value", [-3.0, -0.4, 0.1, 1.9])
@pytest.mark.parametrize("bound", [0.0, 0.3])
def test_the_p_value_is_five_percent_where_the_interval_ends_at_zero(value: float, bound: float) -> None:
    gap = Difference("trace", value, data=(1.0, 7.0), bound=bound)
    assert gap.p == pytest.approx(2 * student.sf(max(0, abs(value) - bound), 7))
    low, high = gap.interval
    assert (gap.p <= 0.05) == (low > 0 or high < 0)
    border = Difference("trace", float(student.ppf(0.975, 7)) + bound, data=(1.0, 7.0), bound=bound)
    assert border.p == pytest.approx(0.05)


def test_exact_and_unknown_differences_have_p_values_too() -> None:
    assert (Difference("trace", 2.0).p, Difference("trace", 2.0).verdict) == (0, "higher")
    assert (Difference("trace", 0.0).p, Difference("trace", 0.0).verdict) == (1, "undecided")
    inside = Difference("λ_max", -0.2, bound=0.3)
    assert (inside.p, inside.verdict) == (1, "undecided")
    for unknown in (Difference("H_N", math.nan), Difference("trace", 1.0, data=(math.nan, 3))):
        assert math.isnan(unknown.p)
        assert unknown.verdict == "undecided"


def test_the_verdicts_of_a_table_are_judged_together() -> None:
    """p = 0.03 is enough alone; of three it is 0.09, and a distance, which has no verdict, does not count."""
    near = Difference("trace", 2.17, data=(1.0, math.inf))
    far, nothing = (
        Difference("λ_max", -9.0, data=(1.0, math.inf)),
        Difference("λ_max", 0.1, data=(1, math.inf)),
    )
    apart = Difference("distance", 5.0, data=(1.0, math.inf), signed=False)
    assert near.verdict == "higher"
    (first,), (second, third, fourth) = judged([[near], [far, nothing, apart]])
    assert [first.verdict, second.verdict, third.verdict] == ["undecided", "lower", "undecided"]
    assert first.joint == pytest.approx(2 * near.p)
    assert first.reason == "p 0.03, 0.06 among 3 verdicts"
    assert replace(first, data=(1.0, 4.0)).reason == "4 dof: p 0.096, 0.06 among 3 verdicts"
    assert near.reason == second.reason == third.reason == fourth.reason == ""
    assert fourth.verdict is None


def test_a_finite_population_makes_differences_surer() -> None:
    def pair(population: int | None) -> list[Difference]:
        problem = {"samples": 10, "operator": "hessian", "population": population}
        parts = {"lambda_max": {"value": 1.0, "batches": [1.0, 3.0], "residual": 0.0}}
        other = {"lambda_max": {"value": 1.0, "batches": [5.0, 2.0], "residual": 0.0}}
        return _differences(_record(problem=problem, **parts), _record(problem=problem, **other))

    usual, finite = pair(None), pair(40)
    for one, two in zip(usual, finite, strict=True):
        assert two.data[0] == pytest.approx(math.sqrt(0.75) * one.data[0])
    assert pair(10)[0].data[0] == 0
