import base64
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from fedscope.errors import UserError
from fedscope.records.hessian_record import HessianRecord, NegativeMass
from fedscope.records.saved_records import read
from fedscope.report.client_charts import spectrum_chart
from fedscope.report.curvature_tables import curvature_table, negative_mass
from fedscope.report.sortable_table import told
from fedscope.report.subjects import subjects
from tests.figures.records import crossed, curvature, landscape, profile, run
from tests.report.pages import landscape_page, report_page

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


def test_its_commands_name_the_checkpoint_and_the_registry() -> None:
    place = {"registry_option": " --registry elsewhere"}
    runs = [{**RUNS[0], **place, "asked": ["round-0002.pt"]}, {**RUNS[1], **place}]
    measured = curvature("two", "m", density=None)
    measured["checkpoint"]["path"] = "two/best.pt"
    table = rows(Page(report_page(runs, [measured], [])), "Training")
    assert "fedscope hessian one@2 --registry elsewhere" in table
    assert "fedscope hessian one@2 two@best --density --registry elsewhere" in table


def test_the_data_set_is_called_as_the_papers_do() -> None:
    cifar = {**RUNS[0], "manifest": {**RUNS[0]["manifest"], "data": {"name": "cifar100"}}}
    found = Page(report_page([cifar], [], [])).text
    assert ("on CIFAR-100" in found, "cifar100" in found.partition("Provenance")[0]) == (True, False)


def test_a_run_alone_is_a_report_and_so_is_a_record_alone() -> None:
    assert "Convergence" in Page(report_page(RUNS[:1], [], [])).text
    alone = Page(report_page([], [curvature(None, None)], []))
    assert ("mine.pt" in alone.text, "Convergence" in alone.text) == (True, False)
    with pytest.raises(UserError, match="nothing to report"):
        report_page([], [], [])


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
    one = curvature(batch_sizes=[128])
    assert words not in Page(report_page([], [one], [])).text  # the samples told it one by one
    for name in ("lambda_max", "trace"):
        one[name] = {**one[name], "stderr_data": None}
    assert words in Page(report_page([], [one], [])).text
    assert words not in Page(report_page([], [curvature()], [])).text


def test_rounds_to_a_target_come_from_the_runs() -> None:
    found = Page(report_page(RUNS, [], []))
    assert [attrs["value"] for _, attrs in found.tags if attrs.get("id") == "target"] == ["40"]
    own = Page(report_page([run(target=0.25)], [], []))
    assert [attrs["value"] for _, attrs in own.tags if attrs.get("id") == "target"] == ["25"]
    between = Page(report_page([run(target=0.555)], [], []))
    assert [attrs["value"] for _, attrs in between.tags if attrs.get("id") == "target"] == ["55.5"]
    assert found.json("page-data")["curves"][0]["accuracy"][1] == [2, 0.2]


def test_saved_records_are_checked_before_they_are_shown() -> None:
    whole = [curvature(cross_client=crossed()), landscape(), profile(), curvature(density=None, trace=None)]
    assert [record.to_json() for record in read(whole, "x")] == whole
    for broken, message in (
        (curvature(trace={"value": "1"}), "trace.value"),
        (curvature(lambda_max={"value": "1", "residual": None, "stderr_data": None}), "lambda_max.value"),
        (curvature(cross_client=crossed(numbers=[1])), "numbers are not of 3 clients"),
        (curvature(checkpoint={"sha256": "<b>"}), "checkpoint.sha256"),
        (landscape(stderr=[[1.0]]), "stderr is no grid of 11 × 11"),
        (landscape(metrics={"accuracy": [[1.0]]}), "accuracy is no grid"),
    ):
        with pytest.raises(UserError, match=message):
            read(broken, "x.json")


def test_the_share_of_negative_eigenvalues_is_an_interval_where_it_has_one() -> None:
    known = {"value": 0.9593, "stderr": 0.0004, "below": -0.2}
    assert negative_mass(NegativeMass.read({**known, "interval": [0.0412, 0.0597]})) == "0.041 to 0.06"
    assert negative_mass(NegativeMass.read({**known, "interval": None})) == "0.9593"


def test_how_many_samples_carry_lambda_max_stands_beside_it() -> None:
    known, unknown = curvature("one"), curvature("two", "fedprox")
    parts = [6.0, *[1.0] * 150]
    known["lambda_max"] = known["lambda_max"] | {"by_sample": parts, "effective_samples": 130.645}
    records = [HessianRecord.read(record) for record in (known, unknown)]
    table = curvature_table([], records, subjects([], records))
    assert table.columns[1:4] == ("λ_max ± data", "n_eff", "top 1 %")
    assert [[cell.text for cell in row[2:4]] for row in table.rows] == [
        ["131", f"{100 * 7 / 156:.3g} %"],
        ["not measured", "not measured"],
    ]
    assert any("top 1 %: share of λ_max" in note for note in table.notes)
    assert any("n_eff: effective number" in note for note in table.notes)
    without = curvature_table([], records[1:], subjects([], records[1:]))
    assert "n_eff" not in without.columns


@pytest.mark.parametrize(
    ("text", "value"),
    [("10.2 ± 1", 10.2), ("−3.1 ± 2: lower", -3.1), ("1,234 ± 5", 1234.0), ("2e+04", 2e4), ("+3 %", 3.0),
     ("(1.50 ± 0.15)×10⁻⁴", 1.5e-4), ("−1.235×10⁵", -123500.0), ("unresolved", "unresolved"), ("–", None)],
)  # fmt: skip
def test_a_text_is_sorted_by_the_number_that_it_begins_with(text: str, value: float | str | None) -> None:
    assert told(text).value == value


def test_the_smallest_eigenvalues_are_not_drawn_as_the_next_largest() -> None:
    one = curvature()
    ends = [{**one["lambda_max"], "value": value} for value in (41.0, 22.0, -0.5, -1.5)]
    record = HessianRecord.read({**one, "eigenvalues": ends, "both_ends": True})
    shown = [(next(iter(subjects([], [record]).values())), record)]
    chart = spectrum_chart(shown)
    assert chart
    values, bars = chart.data
    assert values["y"] == [41.0, 22.0]
    assert bars["y"][2::3] == [None, None]  # one bar for each
