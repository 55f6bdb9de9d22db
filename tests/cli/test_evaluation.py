"""How `fedscope plot-landscape` evaluates points: metrics, adaptive grids, precision, and what is kept."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder

from .conftest import Command

FEW = ("--grid", "9", "--samples", "48", "--directions", "random", "--threads", "1")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture
def plotted(fedscope: Command, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scored.py").write_text(
        "calls = 0\n"
        "def confidence(output, targets):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    return output.softmax(1).amax(1)\n"
    )

    def call(*options: str) -> dict[str, Any]:
        done = fedscope(
            "plot-landscape",
            *FEW,
            "--registry",
            str(run.folder.parent),
            "--json",
            "-",
            "--out",
            "a.png",
            *options,
        )
        assert done.code == 0, done.err
        record: dict[str, Any] = json.loads(done.out)
        return record

    return call


def test_the_record_has_metrics_with_their_errors(plotted: Any) -> None:
    record = plotted("--metric", "accuracy", "--metric", "scored:confidence")
    assert set(record["metrics"]) == {"accuracy", "scored:confidence"} == set(record["metrics_stderr"])
    centre = record["metrics"]["accuracy"][4][4]
    assert centre * 48 == pytest.approx(round(centre * 48))
    # 48 zeros and ones of the 1,437 training images: the standard error of their mean
    variance = centre * (1 - centre) / 47 * (1 - 48 / 1437)
    assert record["metrics_stderr"]["accuracy"][4][4] == pytest.approx(variance**0.5)
    assert record["loss"][4][4] == record["center_loss"]
    assert record["center_metrics"] == {name: grid[4][4] for name, grid in record["metrics"].items()}
    assert record["stderr"][4][4] > 0
    assert (record["points"], record["computed"], record["precision_error"]) == (81, None, None)
    assert (record["precision"], record["statistics"]) == ("fp32", "kept")


def test_what_is_to_be_drawn_is_computed(plotted: Any) -> None:
    assert set(plotted("--show", "accuracy")["metrics"]) == {"accuracy"}


def test_adaptive_and_bfloat16_state_their_errors(plotted: Any) -> None:
    record = plotted("--adaptive", "0.2", "--precision", "bf16", "--grid", "21x17")
    assert record["points"] == sum(map(sum, record["computed"])) < 21 * 17
    assert 0 <= record["interpolation_error"] <= 0.2
    assert 0 < record["precision_error"] < 0.05


def test_points_are_found_again_unless_they_are_not_wanted(plotted: Any) -> None:
    options = ("--metric", "scored:confidence", "--seed", "11")

    def calls(*more: str) -> tuple[dict[str, Any], int]:
        before = getattr(sys.modules.get("scored"), "calls", 0)
        record = plotted(*options, *more)
        return record, sys.modules["scored"].calls - before

    first, spent = calls()
    again, few = calls()
    anew, much = calls("--recompute")
    assert again["metrics"] == first["metrics"] == anew["metrics"]
    assert (spent, few, much) == (81, 2, 81)  # two are evaluated to know what they are of


def test_what_the_user_can_mend_is_one_line(fedscope: Command, run: RunFolder) -> None:
    for options, words in (
        (("--metric", "f1"), "there is no metric 'f1'; use loss, accuracy or your own, MODULE:FUNCTION"),
        (("--show", "f1"), "there is no metric 'f1'"),
        (("--metric", "math:sqrt"), "the metric math:sqrt fails: TypeError"),
        (("--precision", "bf16", "--dtype", "float64"), "float32"),
    ):
        done = fedscope("plot-landscape", *FEW, "--registry", str(run.folder.parent), *options)
        errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
        assert (done.code, len(errors)) == (2, 1)
        assert words in errors[0]
