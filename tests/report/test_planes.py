"""The report's landscapes: scales shared by all, gaps, lines, and what their captions say."""

import math
from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.report.slice_views import caption
from tests.figures.records import curvature, landscape, profile, run
from tests.report.pages import landscape_page, report_page
from tests.report.test_report import Page


def test_what_is_not_finite_stays_a_gap_and_is_counted() -> None:
    found = Page(report_page([], [], [landscape(bad=3)]))
    assert "3 of 121 points not finite" in found.text
    (view,) = found.json("page-data")["planes"][0]["views"]
    assert [row[0] for row in view["z"]["loss"]][:3] == [None] * 3  # along x, at the first y
    broken = curvature(lambda_max={"value": None, "residual": None, "stderr_data": None}, density=None)
    assert "not finite" in Page(report_page([], [broken], [])).text


def test_a_landscape_that_cannot_be_drawn_says_so_and_the_rest_is_there() -> None:
    none = landscape(loss=[[None] * 11] * 11, non_finite=121, center_loss=None)
    point = landscape(axes=[{"name": "a", "values": [0.0]}] * 2, loss=[[1.0]], directions="random")
    still = landscape(directions="pca", axes=[{"name": "a", "values": [0.0, 0.0]}] * 2, loss=[[1.0, 1.0]] * 2)
    found = Page(report_page([run()], [], [none, point, still]))
    for word in ("no loss on the grid is finite", "use --grid 3", "use a --span above 0"):
        assert word in found.text
    for record in (none, point, still):
        with pytest.raises(UserError, match=r"--span|--grid"):
            landscape_page([record])


def test_planes_share_one_scale_over_methods_and_rounds() -> None:
    steep, gentle = (
        landscape("one", "fedavg", curvature=20.0),
        landscape("two", "fedavg+man", round=2, curvature=5.0),
    )
    plane = Page(landscape_page([steep, gentle])).json("page-data")["planes"][0]
    assert plane["rounds"] == [2, 4]
    assert [subject["name"] for subject in plane["subjects"]] == ["FedAvg", "FedAvg+MAN"]
    assert plane["quantities"]["loss"]["low"] == pytest.approx(math.log10(0.2))
    assert plane["quantities"]["loss"]["high"] == pytest.approx(math.log10(0.2 + 20.0))


def test_rows_of_a_view_run_along_the_second_axis() -> None:
    record = landscape(axes=[{"name": "a", "values": [0.0, 1.0]}, {"name": "b", "values": [0.0, 1.0, 2.0]}],
                       loss=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # fmt: skip
    (view,) = Page(landscape_page([record])).json("page-data")["planes"][0]["views"]
    assert view["z"]["loss"] == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert (view["x"], view["y"]) == ([0.0, 1.0], [0.0, 1.0, 2.0])


def test_a_line_shows_its_barrier_and_band() -> None:
    found = Page(landscape_page([profile()]))
    charts = found.json("page-data")["charts"]
    assert set(charts) == {"line-0-loss", "line-0-accuracy"}
    assert "barrier 1.000 at 0.5" in found.text
    low, high, curve = charts["line-0-loss"]["data"]
    assert curve["y"][10] == pytest.approx(2.0)
    assert (low["y"][10], high["y"][10]) == (1.804, 2.196)
    assert "Band: 95 % intervals over samples." in found.text


def test_axes_that_tell_what_they_explain_are_each_records_own() -> None:
    def pca(name: str, share: int) -> dict[str, Any]:
        axes = [{"name": f"axis {k} ({share + k} %)", "values": [0.0, 1.0]} for k in (1, 2)]
        return landscape(name, name, directions="pca", axes=axes, loss=[[1.0, 2.0], [3.0, 4.0]])

    (plane,) = Page(landscape_page([pca("one", 10), pca("two", 20)])).json("page-data")["planes"]
    assert [view["axes"] for view in plane["views"]] == [
        ["axis 1 (11 %)", "axis 2 (12 %)"], ["axis 1 (21 %)", "axis 2 (22 %)"],
    ]  # fmt: skip
    lines = [profile("one"), profile("two", "fedavg+man")]
    for line, end in zip(lines, "bc", strict=True):
        line["axes"][0]["name"] = f"α (a → {end}, distance 1)"
    charts = Page(landscape_page(lines)).json("page-data")["charts"]
    assert charts["line-0-loss"]["layout"]["xaxis"]["title"]["text"] == "α"


def test_a_caption_says_the_curvature_along_the_axes_where_eigenvalues_do_not() -> None:
    along = landscape(surface_curvature=[10.0, 10.0])
    assert (
        caption(LandscapeRecord.read(along))
        == "one@4, 128 samples: loss at the centre 0.2000; λ₁ 10.00, λ₂ 10.00."
    )
    random = landscape(surface_curvature=[3.25, 2.0]) | {"curvature": None}
    assert caption(LandscapeRecord.read(random)).endswith("curvature along the axes 3.250, 2.000.")
