"""Figures of runs: what is one line, which numbers are compared, and what is refused."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy.stats import norm, t

from fedscope.errors import UserError
from fedscope.figures.figure_kinds import RunsKind
from fedscope.figures.runs import drawings
from fedscope.figures.runs.groups import SeedGroup
from fedscope.figures.runs.groups import groups as grouped
from fedscope.records.run_curves import SCHEMA, run_curves
from fedscope.statistics.standard_errors import interval

NORMAL = float(norm.ppf(0.975))  # half a 95 % interval, in standard errors
GALLERY = Path(__file__).parents[3] / "figures"


def draw(records: list[dict[str, Any]], kind: RunsKind, **words: str) -> Figure:
    return drawings.draw(run_curves(records), kind, **words)


def groups(records: list[dict[str, Any]]) -> list[SeedGroup]:
    return grouped(run_curves(records))


def record(method: str = "fedavg", seed: int = 0, *, rounds: int = 4, **changes: Any) -> dict[str, Any]:
    """A run whose accuracy is 10 % of its round and its seed per cent more."""
    numbers = list(range(1, rounds + 1))
    found = {
        "schema": SCHEMA, "run": f"{method}-{seed}", "method": method, "seed": seed, "settings": {"lr": 0.1},
        "dataset": "digits", "test_samples": 100, "versions": {},
        "at": {"round": rounds, "average": "cld", "sha256": f"{method}{seed}{rounds}", "accuracy": 0.5},
        "metrics": {
            "round": numbers, "accuracy": [0.1 * n + 0.01 * seed for n in numbers],
            "loss": [2.0] * rounds, "train_loss": [1.5] * rounds, "bytes": [2e6 * n for n in numbers],
        },
        "curvature": [curvature(f"{method}{seed}{n}", n) for n in numbers],
    }  # fmt: skip
    return {**found, **changes}


def curvature(sha256: str, round: int, *, samples: int = 64, value: float = 5.0) -> dict[str, Any]:
    estimate = {"value": value * round, "stderr": 0.1}
    layers = [{"name": name, **estimate} for name in ("conv1.*", "fc.*")]
    return {
        "sha256": sha256, "round": round, "average": "cld", "samples": samples,
        "lambda_max": estimate, "trace": estimate, "layers": layers,
    }  # fmt: skip


def places(axes: Axes, which: int) -> list[float]:
    """Return where the points stand, across (0) or up (1)."""
    return [float(np.asarray(line.get_data()[which])[0]) for line in axes.lines if line.get_marker() == "o"]


def test_seeds_become_one_line_with_the_interval_of_their_mean() -> None:
    (axes,) = draw([record(seed=0), record(seed=2), record("fedprox")], "accuracy").axes
    mean, (band,) = axes.lines[0], axes.collections
    assert np.asarray(mean.get_ydata()) == pytest.approx([11, 21, 31, 41])
    low, high = band.get_datalim(axes.transData).intervaly
    half = float(t.ppf(0.975, 1))  # of √2/√2
    assert (low, high) == pytest.approx((0, 41 + half))  # no accuracy is below 0 %
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["FedAvg", "FedProx"]


def test_a_method_and_what_adds_to_it_alone_have_colours_of_their_own() -> None:
    (axes,) = draw([record("fedavg"), record("fedavg+man")], "accuracy").axes
    assert axes.lines[0].get_color() != axes.lines[1].get_color()
    (many,) = draw([record(m) for m in ("fedavg", "fedavg+man", "fedsam")], "accuracy").axes
    assert many.lines[0].get_color() == many.lines[1].get_color() != many.lines[2].get_color()


def test_an_adaptive_servers_ratio_stands_below_that_of_local_steps() -> None:
    measured = [
        {**curvature(f"fedadam0{n}", n), "preconditioned": {"value": 0.25 * n, "stderr": 0.01}}
        for n in (2, 4)
    ]
    plain = record("fedadam")
    found = {**plain, "curvature": [one for one in plain["curvature"] if one["round"] % 2] + measured}
    _, local, server = draw([found, record()], "stability").axes
    assert server.get_ylabel().endswith("/ stable")
    assert np.asarray(server.lines[0].get_xdata()) == pytest.approx([2, 4])
    assert np.asarray(server.lines[0].get_ydata()) == pytest.approx([0.5, 1.0])
    assert len(local.lines) > len(server.lines)  # FedAvg's server has no such ratio
    assert len(draw([record()], "stability").axes) == 2


def without_traces(*rounds: int, method: str = "fedavg") -> dict[str, Any]:
    found = record(method)
    curvature = [{**one, "trace": None} if one["round"] in rounds else one for one in found["curvature"]]
    return {**found, "curvature": curvature}


def test_a_quantity_stands_over_the_rounds_that_have_it_and_for_the_methods() -> None:
    some, none = without_traces(1, 3), without_traces(1, 2, 3, 4, method="fedprox")
    _, top, trace = draw([some, none], "rounds").axes
    assert [list(np.asarray(line.get_xdata())) for line in top.lines[:2]] == [[1, 2, 3, 4]] * 2
    assert np.asarray(trace.lines[0].get_xdata()) == pytest.approx([2, 4])
    assert np.asarray(trace.lines[0].get_ydata()) == pytest.approx([10, 20])
    assert [axes.get_ylabel() for axes in draw([none], "rounds").axes] == [
        "test accuracy (%)", top.get_ylabel()
    ]  # fmt: skip
    assert len(draw([some], "sharpness").axes) == 2
    assert len(draw([some, none], "sharpness").axes) == 1


def test_runs_of_other_settings_are_not_averaged() -> None:
    two = groups([record(seed=0), record(seed=1, settings={"lr": 0.2})])
    assert [(group.name, len(group.records)) for group in two] == [("fedavg-0", 1), ("fedavg-1", 1)]


def test_what_adds_to_a_method_stands_behind_it() -> None:
    names = [group.name for group in groups([record(m) for m in ("fedavg+man", "fedsam", "fedavg")])]
    assert names == ["FedAvg", "FedAvg+MAN", "FedSAM"]


def test_curves_are_compared_on_the_rounds_that_all_have() -> None:
    left, right = draw([record(rounds=4), record("fedprox", rounds=9)], "accuracy").axes
    assert [len(np.asarray(line.get_xdata())) for line in left.lines] == [4, 4]
    assert [len(np.asarray(line.get_xdata())) for line in right.lines] == [9]
    assert (left.get_title(), right.get_title()) == ("all, to round 4", "those trained to round 9")


def test_a_run_without_an_accuracy_takes_nothing_from_the_others() -> None:
    """Its network was not evaluated, as of a run from elsewhere."""
    unknown = record("fedprox", rounds=9)
    unknown["metrics"]["accuracy"] = [None] * 9
    (axes,) = draw([record(rounds=4), unknown], "accuracy").axes
    assert [len(np.asarray(line.get_xdata())) for line in axes.lines] == [4, 0]
    left, right = draw([record(rounds=4), unknown, record("fedsam", rounds=6)], "accuracy").axes
    assert (left.get_title(), right.get_title()) == ("all, to round 4", "those trained to round 6")


def test_accuracy_by_traffic_names_its_unit() -> None:
    (axes,) = draw([record()], "bytes").axes
    assert axes.get_xlabel() == "sent by server and clients (MB)"
    assert np.asarray(axes.lines[0].get_xdata()) == pytest.approx([2, 4, 6, 8])


def test_sharpness_stands_below_accuracy_on_one_axis_of_rounds() -> None:
    accuracy, largest, trace = draw([record()], "rounds").axes
    assert accuracy.get_xlim() == largest.get_xlim() == trace.get_xlim()
    assert np.asarray(largest.containers[0].lines[0].get_ydata()) == pytest.approx([5, 10, 15, 20])  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="two rounds of fedavg-0"):
        draw([record(curvature=[])], "rounds")


def test_methods_are_compared_on_one_number_of_samples() -> None:
    many = record("fedprox", curvature=[curvature("fedprox04", 4, samples=9), curvature("fedprox04", 4)])
    left, _ = draw([record(), many], "sharpness").axes
    assert sorted(places(left, 0)) == [20, 20]
    few = record("fedprox", curvature=[curvature("fedprox04", 4, samples=9)])
    with pytest.raises(UserError, match="different numbers of samples"):
        draw([record(), few], "sharpness")
    with pytest.raises(UserError, match="'fedscope hessian fedprox-0@4 --samples 1024' measures it"):
        draw([record(), record("fedprox", curvature=[])], "sharpness")


def test_the_gap_is_test_less_training_loss_of_the_model_that_counts() -> None:
    left, _ = draw([record()], "gap").axes
    assert places(left, 1) == [0.5]
    with pytest.raises(UserError, match="give fedavg-0@all"):
        draw([record(settings={"eval_model": "all"})], "gap")


def test_layers_stand_from_the_input_down() -> None:
    (axes,) = draw([record(), record("fedprox")], "layers", title="Layers").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["conv1.*", "fc.*"]
    first, second = (label.get_position()[1] for label in axes.get_yticklabels())
    assert (first > second) == (axes.get_ylim()[0] < axes.get_ylim()[1])
    bare = record(curvature=[{**curvature("fedavg04", 4), "layers": []}])
    with pytest.raises(UserError, match="--layers"):
        draw([bare], "layers")


def test_how_long_a_run_went_on_does_not_part_seeds_at_a_round() -> None:
    first, longer = record(), record(seed=1)
    longer["settings"] = {"lr": 0.1, "rounds": 999}
    other = longer | {"settings": {"lr": 9.0}}
    assert [len(group.records) for group in groups([first, longer])] == [2]
    assert [len(group.records) for group in groups([first, other])] == [1, 1]


def test_what_is_not_there_is_refused() -> None:
    empty = record(metrics={name: [] for name in record()["metrics"]})
    with pytest.raises(UserError, match=r"fedavg-0 .*metrics"):
        draw([empty], "accuracy")
    with pytest.raises(UserError, match="have no bytes"):
        draw([record(metrics={**record()["metrics"], "bytes": [0, 0, 0, 0]})], "bytes")
    with pytest.raises(UserError, match="no run to draw"):
        draw([], "accuracy")
    with pytest.raises(UserError, match="fedscope/hessian/1"):
        run_curves([{"schema": "fedscope/hessian/1"}])


def test_the_headline_shows_the_numbers_of_table_2() -> None:
    table = json.loads((GALLERY / "man" / "table2-cpu.json").read_text())
    printed = {
        (entry["row"], entry["quantity"]): (entry["value"], entry["error"])
        for entry in table["entries"]
        if entry["column"] == "δ = 0.3, round 150"
    }
    shown = json.loads((GALLERY / "headline.json").read_text())
    figure = draw(shown, "sharpness")
    points = groups(shown)
    assert len(points) == 8
    for group in points:
        measured = [c for one in group.records for c in one.curvature if c.samples == 4096]
        assert len(measured) == len(group.records) == (3 if "FedAvg" in group.name else 1)
        for quantity in ("lambda_max", "trace"):
            value, error = printed[group.name, quantity]
            found = [getattr(one, quantity) for one in measured]
            assert fmean(one.value for one in found) == pytest.approx(value)
            if len(found) == 1:
                assert found[0].stderr == pytest.approx(error)
    captions = " ".join(text.get_text() for text in figure.texts)
    assert "3 seeds of FedAvg and FedAvg+MAN, one of the others" in captions
    drawn = sorted(places(figure.axes[0], 0))
    values = [value for (_, quantity), (value, _) in printed.items() if quantity == "lambda_max"]
    assert drawn == pytest.approx(sorted(values))


def test_stability_is_lambda_max_in_units_of_its_edge() -> None:
    settings = {"lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 1.0}
    accuracy, ratio = draw([record(settings=settings)], "stability").axes
    line, *_ = [line for line in ratio.lines if len(line.get_xdata()) == 4]  # type: ignore[arg-type]
    edge = 2 * 1.9 / 0.1 - 1
    assert list(np.asarray(line.get_ydata())) == pytest.approx([5 * n / edge for n in (1, 2, 3, 4)])
    level = [line for line in ratio.lines if line.get_label() == "edge of stability"]
    assert [float(np.asarray(one.get_ydata())[0]) for one in level] == [1.0]
    assert accuracy.get_ylabel() == "test accuracy (%)"


def recorded(method: str = "fedavg", seed: int = 0, **columns: list[float | None]) -> dict[str, Any]:
    one = record(method, seed)
    return {**one, "metrics": {**one["metrics"], "diagnostics": columns}}


def test_each_quantity_of_a_family_that_a_run_has_is_drawn_below_accuracy() -> None:
    one = recorded(drift=[4, 3, 2, 1], diversity=[1, None, 0.5, 0.25], step=[9, 9, 9, 9])
    accuracy, drift, diversity = draw([one, recorded("fedprox", drift=[1, 1, 1, 1])], "drift").axes
    assert (accuracy.get_ylabel(), drift.get_ylabel()) == ("test accuracy (%)", "drift")
    assert [list(line.get_ydata()) for line in drift.lines] == [[4, 3, 2, 1], [1, 1, 1, 1]]  # type: ignore[arg-type]
    (line,) = diversity.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 3, 4], [1, 0.5, 0.25])  # type: ignore[arg-type]
    _, step = draw([one], "steps").axes
    assert list(step.lines[0].get_ydata()) == [9, 9, 9, 9]  # type: ignore[arg-type]


def test_seeds_share_the_rounds_in_which_all_have_a_quantity() -> None:
    two = [recorded(seed=0, lambda_max=[None, 2, None, 4]), recorded(seed=1, lambda_max=[None, 4, 5, 6])]
    _, probed = draw(two, "probes").axes
    (line,) = probed.lines
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 4], [3, 5])  # type: ignore[arg-type]


def test_the_trace_of_one_run_has_the_band_of_its_interval() -> None:
    one = recorded(trace=[10, None, 12, 14], trace_stderr=[1, None, 2, 3])
    drawn = draw([one], "probes")
    (band,) = drawn.axes[1].collections
    corners = {(x, round(y, 4)) for path in band.get_paths() for x, y in np.asarray(path.vertices).tolist()}
    values = ((1, 10, 1), (3, 12, 2), (4, 14, 3))
    expected = {(x, round(y + s * NORMAL * e, 4)) for x, y, e in values for s in (-1, 1)}
    assert expected <= corners
    assert any("± 95 % intervals over the probes" in text.get_text() for text in drawn.texts)
    assert not draw([recorded(drift=[4, 3, 2, 1])], "drift").axes[1].collections


def test_a_run_without_the_quantities_of_a_kind_is_refused() -> None:
    with pytest.raises(UserError, match="fedavg-0 have nothing of --kind drift: a run of an older fedscope"):
        draw([record()], "drift")
    with pytest.raises(UserError, match="--kind probes: train with --probe-curvature K"):
        draw([recorded(drift=[1, 1, 1, 1], trace=[None] * 4)], "probes")


def test_a_layer_of_several_seeds_is_their_mean_under_its_own_method(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(drawings, "layer_figure", lambda names, values, **_: drawn.update(values))
    seeds = (("fedavg", 0, 10.0), ("fedavg", 1, 12.0), ("fedprox", 0, 50.0), ("fedprox", 1, 60.0))
    records = [
        record(method, seed, curvature=[curvature(f"{method}{seed}4", 4, value=value / 4)])
        for method, seed, value in seeds
    ]
    draw(records, "layers")
    assert [float(drawn[name][0, 0]) for name in ("FedAvg", "FedProx")] == [11.0, 55.0]
    assert float(drawn["FedProx"][0, 1]) == pytest.approx(interval(0, 5.0, 1)[1])


def test_a_server_measured_on_other_samples_is_said_apart() -> None:
    def measured(samples: int, seed: int = 0) -> dict[str, Any]:
        plain = record("fedadam", seed)
        numbers = [
            {
                **curvature(f"p{samples}{seed}{n}", n, samples=samples),
                "preconditioned": {"value": n, "stderr": 0.1},
            }
            for n in (2, 4)
        ]
        return {**plain, "curvature": [*plain["curvature"], *numbers]}

    figure = draw([measured(16)], "stability")
    assert any(
        ", of P$^{-1}$H on 16," in text
        for text in (one.get_text() for one in figure.findobj(Text) if isinstance(one, Text))
    )
    with pytest.raises(UserError, match="16, 17 samples"):
        draw([measured(16), measured(17, seed=1)], "stability")


def test_small_gaps_leave_their_power_of_ten_to_the_axis_name_which_is_on_the_page() -> None:
    one = record()
    one["metrics"]["train_loss"] = [loss - 3.2e-4 for loss in one["metrics"]["loss"]]
    figure = draw([one], "gap")
    label = figure.axes[0].yaxis.label
    assert "in 10" in label.get_text()
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    assert label.get_window_extent().x0 >= 0


def test_shares_are_drawn_in_per_cent_from_zero() -> None:
    one = recorded(clipped=[0.5, 0.25, 0.1, 0.2], worst_class=[0, 0, 0, 0])
    _, clipped, worst = draw([one], "local").axes
    assert clipped.get_ylabel() == "clipped steps (%)"
    assert np.asarray(clipped.lines[0].get_ydata()) == pytest.approx([50, 25, 10, 20])
    assert worst.get_ylim() == (0, 1)
