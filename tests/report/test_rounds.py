"""Curvature by round in the report: which charts there are, and what they show."""

from typing import Any

import pytest

from fedscope.records.run_record import RunRecord
from fedscope.report.plotly_panels import Chart
from fedscope.report.round_charts import curvature_by_round
from fedscope.report.subjects import subjects
from tests.figures.records import run


def model(round: int, value: float | None, *, samples: int = 64, average: str = "cld") -> dict[str, Any]:
    return {
        "sha256": f"{round}-{samples}-{average}", "round": round, "average": average, "samples": samples,
        "lambda_max": {"value": value, "stderr": 0.5}, "trace": {"value": 100.0, "stderr": 2.0}, "layers": [],
    }  # fmt: skip


def charts(*curvature: dict[str, Any], **settings: Any) -> dict[str, Chart]:
    record = RunRecord.read({**run(**settings), "curvature": list(curvature)})
    return {chart.id: chart for chart in curvature_by_round([record], subjects([record], []))}


def test_lambda_max_trace_and_the_edge_of_stability() -> None:
    found = charts(model(1, 5.0), model(3, 19.0), momentum=0.9, weight_decay=0.0)
    assert [*found] == ["curve-lambda_max", "curve-trace", "curve-stability"]
    *band, line = found["curve-lambda_max"].data
    assert (line["x"], line["y"]) == ([1, 3], [5.0, 19.0])
    assert [edge["y"] for edge in band] == [[4.02002, 18.02], [5.97998, 19.98]]  # 1.96 · 0.5
    *band, line = found["curve-stability"].data
    assert line["y"] == pytest.approx([5 / 38, 0.5], rel=1e-5)  # 2·1.9/0.1
    assert [edge["y"] for edge in band] == [
        pytest.approx([(5 + e) / 38, (19 + e) / 38], rel=1e-5) for e in (-0.979982, 0.979982)
    ]
    assert "On 64 training samples" in found["curve-trace"].caption
    assert "ends at 19.00 in round 3" in found["curve-lambda_max"].alt


def test_rounds_of_unlike_samples_and_averages_are_not_joined() -> None:
    found = charts(model(1, 5.0), model(2, 6.0), model(3, 7.0, samples=32), model(4, 8.0, average="all"))
    assert found["curve-lambda_max"].data[-1]["x"] == [1, 2]
    assert charts(model(1, 5.0), model(2, 6.0, samples=32)) == {}
    assert charts() == {}


def test_what_is_not_finite_leaves_a_gap() -> None:
    found = charts(model(1, None), model(2, 6.0))
    assert found["curve-lambda_max"].data[-1]["y"] == [None, 6.0]


def test_a_run_that_does_not_say_its_steps_has_no_edge() -> None:
    content = {**run(), "curvature": [model(1, 5.0), model(2, 6.0)]}
    content["manifest"]["added"]["stated"].remove("lr")
    record = RunRecord.read(content)
    found = curvature_by_round([record], subjects([record], []))
    assert [chart.id for chart in found] == ["curve-lambda_max", "curve-trace"]


@pytest.mark.parametrize("rates", [[0.1, 0.05], [None, None]])
def test_the_edge_is_that_of_each_rounds_rate(rates: list[float | None]) -> None:
    content = {**run(rounds=2), "curvature": [model(1, 5.0), model(2, 5.0)]}
    for line, rate in zip(content["metrics"], rates, strict=True):
        line["lr"] = rate
    record = RunRecord.read(content)
    *_, edge = curvature_by_round([record], subjects([record], []))
    decay = record.manifest.settings.weight_decay if record.manifest.states("weight_decay") else 0.0
    assert edge.data[-1]["y"] == pytest.approx([5 / (2 / (rate or 0.1) - decay) for rate in rates], rel=1e-5)


def test_an_adaptive_server_has_its_own_edge() -> None:
    ratios = {"preconditioned": {"value": 0.25, "stderr": 0.05}}
    found = charts({**model(1, 5.0), **ratios}, model(2, 6.0), {**model(3, 7.0), **ratios})
    *band, line = found["curve-server-stability"].data
    assert (line["x"], line["y"]) == ([1, 3], [0.25, 0.25])
    assert [edge["y"] for edge in band] == [[0.152002] * 2, [0.347998] * 2]
    assert found["curve-server-stability"].layout["shapes"][0]["y0"] == 1
    assert "curve-server-stability" not in charts({**model(1, 5.0), **ratios}, model(2, 6.0))
