import base64
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.figures.report import landscape_page, report_page
from fedscope.figures.report.checked import checked
from fedscope.figures.report.metrics import negative_mass
from tests.figures.records import crossed, curvature, landscape, profile, run

VOID = {"meta", "link", "img", "input", "br", "hr"}


class Page(HTMLParser):
    """The parts of a document that the tests ask for, by an HTML parser that is not a browser."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[tuple[int, str]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif "style" not in self.open:
            self.text += data
            if self.open and re.fullmatch("h[1-6]", self.open[-1]):
                level, words = self.headings[-1]
                self.headings[-1] = (level, words + data)

    def json(self, name: str) -> Any:
        (found,) = (text for attrs, text in self.scripts if attrs.get("id") == name)
        return json.loads(found)

    def attributes(self, tag: str, name: str) -> list[str | None]:
        return [attrs[name] for found, attrs in self.tags if found == tag and name in attrs]


RUNS = [run("one", "fedavg"), run("two", "fedavg+man", rounds=6)]
CURVATURES = [curvature("one", "fedavg"), curvature("two", "fedavg+man", top=20.0)]
LANDSCAPES = [
    landscape(name, method, round=round)
    for name, method in (("one", "fedavg"), ("two", "fedavg+man"))
    for round in (2, 4)
]


@pytest.fixture(scope="module")
def text() -> str:
    return report_page(RUNS, CURVATURES, [*LANDSCAPES, profile()])


@pytest.fixture(scope="module")
def whole(text: str) -> Page:
    return Page(text)


def test_headings_are_in_order_and_name_every_part(whole: Page) -> None:
    levels = [level for level, _ in whole.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    parts = [words for level, words in whole.headings if level == 2]
    assert parts == [
        "Summary",
        "Runs",
        "Curvature",
        "Convergence",
        "Loss landscapes",
        "Spectra",
        "Provenance",
    ]


def test_everything_is_labelled(whole: Page) -> None:
    assert whole.attributes("html", "lang") == ["en"]
    images = [attrs for tag, attrs in whole.tags if tag == "img"]
    assert images
    assert all((attrs["alt"] or "").startswith("Surfaces and contours of the loss") for attrs in images)
    charts = [attrs for _, attrs in whole.tags if "data-chart" in attrs]
    assert len(charts) == 6  # two curves, two of the line, density, spectrum
    assert all(attrs["role"] == "group" and attrs["aria-label"] for attrs in charts)
    assert not [attrs for _, attrs in whole.tags if "onclick" in attrs or attrs.get("tabindex", "0") != "0"]
    assert set(whole.attributes("button", "type")) == {"button"}
    assert set(whole.attributes("th", "aria-sort")) == {"none"}


def test_nothing_is_asked_from_anywhere(text: str, whole: Page) -> None:
    for name in ("src", "href", "data", "action", "srcset", "poster"):
        for tag in {tag for tag, _ in whole.tags}:
            values = [value or "" for value in whole.attributes(tag, name)]
            assert all(value.startswith(("data:", "#")) for value in values), (tag, name)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    (policy,) = (
        attrs["content"] for _, attrs in whole.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert "unsafe" not in rules["script-src"]
    assert not any(place in rule for rule in rules.values() for place in ("http", "*", "'self'"))


EVIL = "<script>alert(1)</script></script><!--<img src=x onerror=alert(1)>\u2028&amp;"


def evil_landscape() -> dict[str, Any]:
    return landscape(
        "one",
        EVIL,
        axes=[{"name": EVIL, "values": [0.0, 1.0]}] * 2,
        loss=[[1.0, 2.0], [3.0, 4.0]],
        marks=[{"label": EVIL, "at": [0.0, 0.0], "distance": 0.1}],
    )


def test_texts_are_inert() -> None:
    page_text = report_page(
        [run("one", EVIL)],
        [curvature("one", EVIL), curvature(None, EVIL)],
        [evil_landscape()],
    )
    found = Page(page_text)
    assert len(found.scripts) == 6  # two of data, plotly's and three of ours
    assert not [attrs for tag, attrs in found.tags if tag == "img" and attrs.get("src") == "x"]
    assert EVIL in found.text.replace("\xa0", " ")
    plots = found.json("page-data")
    assert plots["planes"][0]["subjects"][0]["name"] == "one"
    labels = json.dumps(
        [plots["charts"], plots["planes"][0]["views"][0]["axes"], plots["planes"][0]["views"][0]["marks"]]
    )
    assert "<script" not in labels  # plotly reads tags in texts
    assert found.json("page-provenance")["analyses"][0]["problem"]["method"] == EVIL


def test_the_same_records_give_the_same_bytes(text: str) -> None:
    assert report_page(RUNS, CURVATURES, [*LANDSCAPES, profile()]) == text


def test_six_methods_over_ten_rounds_stay_under_ten_megabytes() -> None:
    names = [f"m{i}" for i in range(6)]
    many = [
        landscape(name, name, round=round, points=41, curvature=math.pi * (i + 1) / round)
        for i, name in enumerate(names)
        for round in range(10, 110, 10)
    ]
    page_text = report_page([run(n, n, rounds=100) for n in names], [curvature(n, n) for n in names], many)
    assert 5_000_000 < len(page_text.encode()) < 10_000_000


def rows(found: Page, caption: str) -> str:
    start = found.text.index(caption)
    return found.text[start:]


def test_the_table_says_what_was_measured_and_how_to_measure_the_rest() -> None:
    found = Page(report_page(RUNS, CURVATURES[:1], []))
    table = rows(found, "Training")
    for word in ("50.00 ± 0.50", "500.0 ± 4.0 ± 9.0", "40.00 (round 4)", "60.00 (round 6)", "not measured"):
        assert word in table
    assert "fedscope hessian two" in table
    assert "fedscope hessian two --density" in table
    assert "fedscope hessian one two --clients" in table
    values = [attrs.get("data-value") for tag, attrs in found.tags if tag == "td"]
    assert {"50.0", "500.0", "0.4", "4"} <= set(values)


def test_a_run_alone_is_a_report_and_so_is_a_record_alone() -> None:
    assert "Convergence" in Page(report_page(RUNS[:1], [], [])).text
    alone = Page(report_page([], [curvature(None, None)], []))
    assert ("mine.pt" in alone.text, "Convergence" in alone.text) == (True, False)
    with pytest.raises(UserError, match="nothing to report"):
        report_page([], [], [])


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
    found = Page(report_page(RUNS, [], [none, point, still]))
    for word in ("no loss on the grid is finite", "use --grid 3", "use a --span above 0"):
        assert word in found.text
    for record in (none, point, still):
        with pytest.raises(UserError, match=r"--span|--grid"):
            landscape_page([record])


def test_planes_share_one_scale_over_methods_and_rounds() -> None:
    steep, gentle = (
        landscape("one", "fedavg", curvature=40.0),
        landscape("two", "fedavg+man", round=2, curvature=5.0),
    )
    plane = Page(landscape_page([steep, gentle])).json("page-data")["planes"][0]
    assert plane["rounds"] == [2, 4]
    assert [subject["name"] for subject in plane["subjects"]] == ["FedAvg", "FedAvg+MAN"]
    assert plane["quantities"]["loss"]["low"] == pytest.approx(math.log10(0.2))
    assert plane["quantities"]["loss"]["high"] == pytest.approx(math.log10(0.2 + 40.0))


def test_rows_of_a_view_run_along_the_second_axis() -> None:
    record = landscape(axes=[{"name": "a", "values": [0.0, 1.0]}, {"name": "b", "values": [0.0, 1.0, 2.0]}],
                       loss=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # fmt: skip
    (view,) = Page(landscape_page([record])).json("page-data")["planes"][0]["views"]
    assert view["z"]["loss"] == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert (view["x"], view["y"]) == ([0.0, 1.0], [0.0, 1.0, 2.0])


def test_the_provenance_is_all_there_and_no_path_of_the_machine(text: str, whole: Page) -> None:
    about = whole.json("page-provenance")
    (link,) = (attrs for tag, attrs in whole.tags if tag == "a" and attrs.get("id") == "provenance-link")
    assert link["download"] == "provenance.json"
    assert json.loads(base64.b64decode((link["href"] or "").split(",")[1])) == about
    hashes = [record["checkpoint"]["sha256"] for record in (*CURVATURES, *LANDSCAPES)]
    assert about["checkpoints"] == [*hashes, profile()["checkpoint"]["sha256"]]
    assert [one["manifest"]["name"] for one in about["runs"]] == ["one", "two"]
    assert all(sha256 in whole.text for sha256 in hashes)
    assert "/home/me" not in text
    borrowed = landscape(directions_of=landscape("two")["checkpoint"])
    assert "/home/me" in borrowed["directions_of"]["path"]
    assert "/home/me" not in landscape_page([borrowed])
    assert {one["versions"]["torch"] for one in about["analyses"]} == {"2.0"}


def test_ticks_of_short_runs_are_whole_rounds() -> None:
    for rounds, expected in ((3, {"dtick": 1}), (30, {"tickformat": "d"})):
        charts = Page(report_page([run(rounds=rounds)], [], [])).json("page-data")["charts"]
        axis = charts["curve-accuracy"]["layout"]["xaxis"]
        assert {key: axis[key] for key in ("dtick", "tickformat") if key in axis} == expected


def test_an_error_that_one_batch_cannot_have_is_explained() -> None:
    words = "–: the error from the samples is not known from one batch; a smaller --batch-size would tell it"
    assert words in Page(report_page([], [curvature(batch_sizes=[128])], [])).text
    assert words not in Page(report_page([], [curvature()], [])).text


def test_rounds_to_a_target_come_from_the_runs() -> None:
    found = Page(report_page(RUNS, [], []))
    assert [attrs["value"] for _, attrs in found.tags if attrs.get("id") == "target"] == ["40"]
    own = Page(report_page([run(target=0.25)], [], []))
    assert [attrs["value"] for _, attrs in own.tags if attrs.get("id") == "target"] == ["25"]
    assert found.json("page-data")["curves"][0]["accuracy"][1] == [2, 0.2]


def test_a_line_shows_its_barrier_and_band() -> None:
    found = Page(landscape_page([profile()]))
    charts = found.json("page-data")["charts"]
    assert set(charts) == {"line-0-loss", "line-0-accuracy"}
    assert "barrier 1.000 at 0.5" in found.text
    curve, low, high = charts["line-0-loss"]["data"]
    assert curve["y"][10] == pytest.approx(2.0)
    assert (low["y"][10], high["y"][10]) == (pytest.approx(1.9), pytest.approx(2.1))
    assert "Band: ± one standard error over samples." in found.text


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


def test_clients_are_shown_one_by_one_and_in_pairs() -> None:
    found = Page(report_page([], [curvature(cross_client=crossed())], []))
    assert "Clients" in [words for level, words in found.headings if level == 2]
    table = rows(found, "Client by client")
    for word in ("2.00 ± 0.10", "0.8000", "5"):
        assert word in table
    assert "λ_max ± data" not in table  # no client's was measured
    assert "12.00 ± 0.10" in found.text
    assert "unresolved" in found.text
    charts = found.json("page-data")["charts"]
    pairs, agreement = charts["pairs-0"]["data"][0], charts["pairs-1"]["data"][0]
    assert pairs["z"] == [[None, 1.0, 2.0], [1.0, None, 3.0], [2.0, 3.0, None]]
    assert (pairs["zmin"], pairs["zmax"]) == (1.0, 3.0)
    assert (agreement["z"][0][1], agreement["zmax"]) == (0.5, 1.0)


def test_records_without_the_clients_own_numbers_have_no_such_part() -> None:
    old = {
        key: value
        for key, value in crossed().items()
        if key not in ("numbers", "traces", "overlap", "matrices")
    }
    found = Page(report_page([], [curvature(cross_client=old)], []))
    assert "Clients" not in [words for level, words in found.headings if level == 2]


def test_saved_records_are_checked_before_they_are_shown() -> None:
    whole = [curvature(cross_client=crossed()), landscape(), profile(), curvature(density=None)]
    assert checked(whole, "x") is whole
    for broken, message in (
        (curvature(trace=None), "trace"),
        (curvature(lambda_max={"value": "1", "residual": None, "stderr_data": None}), "lambda_max.value"),
        (curvature(cross_client=crossed(numbers=[1])), "numbers are not of 3 clients"),
        (curvature(checkpoint={"sha256": "<b>"}), "checkpoint.sha256"),
        (landscape(stderr=[[1.0]]), "stderr is no grid of 11 × 11"),
        (landscape(metrics={"accuracy": [[1.0]]}), "accuracy is no grid"),
    ):
        with pytest.raises(UserError, match=message):
            checked(broken, "x.json")


def test_the_share_of_negative_eigenvalues_is_an_interval_and_an_older_one_is_not_shown() -> None:
    old = {"value": 0.9593, "stderr": 0.0004, "interval": [0.958, 0.961]}
    assert negative_mass(old) is None
    assert negative_mass({**old, "below": -0.2, "interval": [0.0412, 0.0597]}) == "0.041 to 0.06"
    assert negative_mass({**old, "below": -0.2, "interval": None}) == "0.9593"
