"""Clients by round in the report: which charts there are, and that their numbers are those of the records."""

from typing import Any

import pytest

import fedscope.report as report
from fedscope.records.client_quantities import gap
from fedscope.records.clients_record import Amount, ClientsRecord
from fedscope.records.run_record import RunRecord
from fedscope.report.clients_by_round import clients_by_round
from fedscope.report.plotly_panels import Chart
from fedscope.report.subjects import subjects
from tests.figures.clients.records import record
from tests.figures.records import run


def at(round: int, name: str = "fedavg", samples: int = 512, **parts: None) -> ClientsRecord:
    one = record(3, seed=round, run=name, **parts).to_json()
    one["checkpoint"] |= {"round": round, "sha256": f"{round:x}"}
    one["problem"]["samples"] = samples
    return ClientsRecord.read(one)


def charts(*given: ClientsRecord, runs: tuple[str, ...] = ("fedavg",), known: Any = ()) -> dict[str, Chart]:
    records = [RunRecord.read(run(name, name)).model_copy(update={"clients": tuple(known)}) for name in runs]
    found = clients_by_round(records, given, subjects(records, given))
    return {chart.id: chart for chart in found}


def lines(chart: Chart) -> list[dict[str, Any]]:
    return [trace for trace in chart.data if trace.get("showlegend") is not False]


def test_of_one_run_every_panel_has_a_sum_and_its_parts() -> None:
    rounds = [at(4), at(1), at(2)]
    found = charts(*rounds)
    chart = found["curve-clients-gap-0"]
    shown = lines(chart)
    assert [line["x"] for line in shown] == [[1, 2, 4]] * 3
    for line, name in zip(shown, ("discrepancy", "averaging_global", "function_at_own"), strict=True):
        numbers = [gap(one, quantity="loss", name=name) for one in (at(1), at(2), at(4))]
        assert line["y"] == pytest.approx([one.value for one in numbers if one], rel=1e-5)
    amount = gap(at(4), quantity="loss", name="discrepancy")
    assert isinstance(amount, Amount)
    assert amount.interval
    assert chart.data[1]["y"][-1] == pytest.approx(amount.interval[1], rel=1e-5)
    assert len({line["line"]["color"] for line in shown}) == 3
    assert {name.rsplit("-", 1)[0] for name in found} >= {
        "curve-clients-gap", "curve-clients-alignment", "curve-clients-drift",
    }  # fmt: skip
    assert "on 512 samples of all; bands: 95 % intervals" in chart.caption


def test_of_several_runs_each_main_number_has_a_line_for_each() -> None:
    found = charts(at(1), at(2), at(1, "fedprox"), at(3, "fedprox"), runs=("fedavg", "fedprox"))
    for chart in found.values():
        assert [line["name"] for line in lines(chart)] == ["FedAvg", "FedProx"]
        assert [line["x"] for line in lines(chart)] == [[1, 2], [1, 3]]
    assert "curve-clients-gap-0" in found


def test_what_the_registry_has_and_what_is_given_are_one_curve() -> None:
    found = charts(at(2), known=[at(1), at(3)])
    assert lines(found["curve-clients-gap-0"])[0]["x"] == [1, 2, 3]


def test_rounds_on_unlike_samples_are_not_joined_and_parts_of_one_round_are() -> None:
    without_flatness = at(4).edited(flatness=[], measured=["drift"])
    found = charts(at(1), at(2), at(3, samples=64), at(4, averaging=None), without_flatness)
    assert lines(found["curve-clients-gap-0"])[0]["x"] == [1, 2, 4]
    assert lines(found["curve-clients-drift-0"])[0]["x"] == [1, 2, 4]
    assert charts(at(1), at(2, samples=64)) == {}
    assert charts(at(1)) == {}


def test_the_page_has_the_curves_in_their_section_with_their_sources() -> None:
    own = RunRecord.read(run("fedavg", "fedavg")).model_copy(update={"clients": (at(1), at(2))})
    page = report.report_page([own], [], [])
    section = page[page.index('id="rounds-title"') :]
    assert 'data-chart="curve-clients-gap-0"' in section
    assert page.count("fedavg@1 (fedscope/clients/1)") == 1
    assert "<figcaption>fedavg@1: " not in page  # tables and pictures are of what was asked for
