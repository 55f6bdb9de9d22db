"""The report's table of what the training reached."""

from typing import Any

from fedscope.records.runs import RunRecord
from fedscope.report.curves import convergence
from fedscope.report.subjects import subjects
from fedscope.report.training import final_accuracy, training_table
from tests.figures.records import run


def test_the_last_accuracy_is_final_and_the_first_of_equals_best() -> None:
    one = run("one", rounds=5)
    for line, accuracy in zip(one["metrics"], (0.1, 0.7, 0.3, 0.7, 0.4), strict=True):
        line["accuracy"] = accuracy
    record = RunRecord.read(one)
    table = training_table([record], subjects([record], []))
    assert [cell.text for cell in table.rows[0]] == ["FedAvg", "5", "40.00", "70.00 (round 2)", "0.4000"]
    one["metrics"][-1]["accuracy"] = None  # its network was not evaluated after every round
    assert final_accuracy(RunRecord.read(one)).text == "70.00"


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
