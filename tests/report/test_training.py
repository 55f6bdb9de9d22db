"""The report's table of what the training reached."""

from typing import Any

import pytest

from fedscope.checkpoints.file.settings import Settings
from fedscope.records.round_quantities import QUANTITIES
from fedscope.records.run_record import RunRecord
from fedscope.report.round_charts import convergence, diagnostics, final_accuracy, runs_table, training_table
from fedscope.report.subjects import subjects
from tests.figures.records import run
from tests.records.test_round_quantities import DIAGNOSTICS


def test_the_last_accuracy_is_final_and_the_first_of_equals_best() -> None:
    one = run("one", rounds=5)
    for line, accuracy in zip(one["metrics"], (0.1, 0.7, 0.3, 0.7, 0.4), strict=True):
        line["accuracy"] = accuracy
    record = RunRecord.read(one)
    table = training_table([record], subjects([record], []))
    assert [cell.text for cell in table.rows[0]] == ["FedAvg", "5", "40.00", "70.00 (round 2)", "0.4000"]
    one["metrics"][-1]["accuracy"] = None  # its network was not evaluated after every round
    assert final_accuracy(RunRecord.read(one)).text == "70.00"


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({}, ("dirichlet_balanced, α 0.5, ", "epochs 2, batch size 32, rate 0.05")),
        ({"partition": "shards", "alpha": None, "shards": 2}, ("shards, 2 shards each, ",)),
        ({"partition": "fixed_classes", "alpha": None, "classes_per_client": 3}, ("s, 3 classes each, ",)),
        ({"optimizer": "adam"}, ("epochs 2, batch size 32, rate 0.05, adam",)),
        ({"local_steps": 7, "stragglers": 0.9}, ("steps 7 (90\u00a0% stragglers), batch",)),
    ],
)
def test_the_settings_say_what_clients_hold_and_do(fields: dict[str, Any], texts: tuple[str, ...]) -> None:
    one = run("one")
    one["manifest"] |= {"added": None, "settings": Settings(**fields).model_dump(mode="json")}
    record = RunRecord.read(one)
    row = " | ".join(cell.text for cell in runs_table([record], subjects([record], [])).rows[0])
    assert all(text in row for text in texts)


def test_a_curves_caption_names_the_model_that_was_evaluated() -> None:
    def captions(one: dict[str, Any]) -> list[str]:
        record = RunRecord.read(one)
        return [chart.caption for chart in convergence([record], subjects([record], []))]

    assert captions(run("one")) == [
        "Accuracy of the global model.",
        "Loss of the global model, on the same samples.",
    ]
    mean = captions(run("one", eval_model="all"))
    assert mean[0] == "Accuracy of the mean of all clients' last models."


def test_every_quantity_that_a_run_recorded_has_a_chart_by_round() -> None:
    one, other = run("one"), run("two", "fedprox")
    for line in one["metrics"][1:]:
        line["diagnostics"] = DIAGNOSTICS
    records = [RunRecord.read(one), RunRecord.read(other)]
    who = subjects(records, [])
    charts = {chart.id: chart for chart in diagnostics(records, who)}
    assert list(charts) == [f"curve-{one.name}" for one in QUANTITIES]
    (trace,) = charts["curve-drift"].data
    assert (list(trace["x"]), list(trace["y"])) == ([2, 3, 4], [3, 3, 3])
    assert charts["curve-drift"].alt == "Drift by round: FedAvg ends at 3.000 in round 4."
    assert charts["curve-lambda_max"].caption.endswith("under --probe-curvature.")
    assert diagnostics(records[1:], who) == []
