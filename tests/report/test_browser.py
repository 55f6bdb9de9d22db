"""The report in a real browser: headless Chromium, from a file, by mouse, by keyboard and on paper."""

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from tests.figures.records import curvature, landscape, run
from tests.report.browser import keep, keep_file, log, wait
from tests.report.pages import report_page

pytestmark = pytest.mark.slow


def pixels(element: WebElement) -> Any:
    element.parent.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return np.asarray(Image.open(io.BytesIO(element.screenshot_as_png)).convert("RGB"), dtype=float)


def colourful(element: WebElement) -> float:
    """The share of pixels with a colour: no paper, no ink."""
    image = pixels(element)
    return float((np.ptp(image, axis=2) > 24).mean())


def names_in_order(chrome: Chrome, table: str) -> list[str]:
    rows = chrome.find_elements(By.CSS_SELECTOR, f"{table} tbody th")
    return [row.text for row in rows]


METHODS = {"one": "fedavg", "two": "fedavg+man"}


TOPS = {"one": 50.0, "two": 20.0}
EYES = "return [...document.querySelectorAll('.space')].map(s => s._fullLayout.scene.camera.eye.x)"


def without_landscapes() -> str:
    return with_landscapes([])


def rounds(top: float, round: int) -> dict[str, Any]:
    """The curvature of a model that a run kept."""
    estimate = {"value": top / round, "stderr": 1.0}
    return {
        "sha256": f"{top}-{round}", "round": round, "average": "cld", "samples": 64,
        "lambda_max": estimate, "trace": estimate, "layers": [],
    }  # fmt: skip


def with_landscapes(planes: list[dict[str, Any]]) -> str:
    runs = [run(name, method, rounds=4 + i) for i, (name, method) in enumerate(METHODS.items())]
    runs = [
        {**one, "curvature": [rounds(top, 2), rounds(top, 4)]}
        for one, top in zip(runs, TOPS.values(), strict=True)
    ]
    return report_page(runs, [curvature(name, METHODS[name], top=top) for name, top in TOPS.items()], planes)


def test_a_reader_looks_around(visit: Callable[[str], Chrome]) -> None:
    # the landscapes become gentler from round 2 to round 4
    planes = [
        landscape(name, METHODS[name], round=round, points=7, curvature=top / round)
        for name, top in TOPS.items()
        for round in (2, 4)
    ]
    chrome = visit(with_landscapes(planes))
    keep(chrome, "report")
    one = chrome.find_element(By.CSS_SELECTOR, "figure[data-side='0']")
    two = chrome.find_element(By.CSS_SELECTOR, "figure[data-side='1']")

    # everything is drawn
    for chart in chrome.find_elements(By.CSS_SELECTOR, "[data-chart]"):
        assert chart.find_elements(By.CSS_SELECTOR, "svg .trace path")
        assert colourful(chart) > 0.0005
    for space in chrome.find_elements(By.CSS_SELECTOR, ".space"):
        assert space.find_elements(By.TAG_NAME, "canvas")
        assert colourful(space) > 0.1
    assert all(colourful(flat) > 0.3 for flat in chrome.find_elements(By.CSS_SELECTOR, ".flat"))

    # a method is switched: the first side shows what the second shows
    before = pixels(one.find_element(By.CLASS_NAME, "flat"))
    Select(chrome.find_element(By.CSS_SELECTOR, "select[data-side='0']")).select_by_visible_text("FedAvg+MAN")
    wait(
        chrome,
        "return arguments[0].textContent.startsWith('two@4')",
        one.find_element(By.TAG_NAME, "figcaption"),
    )
    wait(chrome, "return document.querySelectorAll('.flat')[0].data[0].z[0][0] === "
                 "document.querySelectorAll('.flat')[1].data[0].z[0][0]")  # fmt: skip
    assert np.abs(pixels(one.find_element(By.CLASS_NAME, "flat")) - before).max() > 20
    assert one.find_element(By.CLASS_NAME, "name").text == "FedAvg+MAN"

    # the slider is moved: an earlier round, and as steep as that was
    corner = "return document.querySelectorAll('.flat')[1].data[0].z[0][0]"
    assert chrome.execute_script(corner) == pytest.approx(np.log10(0.2 + 20 / 4), rel=1e-5)
    chrome.find_element(By.CSS_SELECTOR, "input[type='range']").send_keys(Keys.LEFT)
    wait(
        chrome,
        "return arguments[0].textContent.startsWith('two@2')",
        two.find_element(By.TAG_NAME, "figcaption"),
    )
    wait(chrome, f"{corner} > 0.9")
    assert chrome.execute_script(corner) == pytest.approx(np.log10(0.2 + 20 / 2), rel=1e-5)
    assert chrome.find_element(By.TAG_NAME, "output").text == "round 2"

    # that round is marked in every curve, and stays when the slider is moved on
    marks = (
        "return [...document.querySelectorAll('[data-chart^=curve-]')].map(c => [c.dataset.chart, "
        "c.layout.shapes.map(s => s.x0)])"
    )
    marked = dict(chrome.execute_script(marks))
    assert marked.pop("curve-stability") == [0, 2]  # the edge of stability, and the round
    assert marked == {f"curve-{name}": [2] for name in ("accuracy", "loss", "lambda_max", "trace")}

    # a table is sorted, up and down
    by_trace = chrome.find_element(By.XPATH, "//section[@id='curvature']//button[starts-with(., 'trace')]")
    for expected, direction in (
        (["FedAvg+MAN", "FedAvg"], "ascending"),
        (["FedAvg", "FedAvg+MAN"], "descending"),
    ):
        by_trace.click()
        assert names_in_order(chrome, "#curvature table")[:2] == expected
        assert by_trace.find_element(By.XPATH, "..").get_attribute("aria-sort") == direction

    # the camera is turned by a key, for both sides, as is every control of theirs reached
    chrome.execute_script(
        "arguments[0].focus({focusVisible: true})", chrome.find_element(By.CSS_SELECTOR, "select[data-side]")
    )
    reached = walk(chrome, lambda here: here.text == "Turn left")
    assert reached == ["select Show", "select beside", "input Round", "button Turn left"]
    before = chrome.execute_script(EYES)
    chrome.switch_to.active_element.send_keys(Keys.ENTER)
    turned = f"const eyes = (() => {{ {EYES} }})(); return eyes.every(x => Math.abs(x - arguments[0]) > 0.1)"
    wait(chrome, turned, before[0])
    after = chrome.execute_script(EYES)
    assert after[0] == pytest.approx(after[1])

    # a method is hidden, in every chart
    chrome.find_element(By.CSS_SELECTOR, "#convergence input[data-subject='0']").click()
    hidden = "return [...document.querySelectorAll('[data-chart]')].map(c => c.data[0].visible)"
    assert set(chrome.execute_script(hidden)) == {"legendonly"}
    assert not chrome.find_element(By.CSS_SELECTOR, "#spectra input[data-subject='0']").is_selected()
    keep(chrome, "report-used")


def walk(chrome: Chrome, last: Callable[[WebElement], bool]) -> list[str]:
    """Go from the focused element by the tabulator to the last one; each shows its focus and has a name."""
    stops: list[str] = []
    for _ in range(200):
        here = chrome.switch_to.active_element
        stops.append(f"{here.tag_name} {here.accessible_name.strip()}")
        assert chrome.execute_script("return getComputedStyle(arguments[0]).outlineStyle", here) != "none", (
            stops
        )
        assert here.accessible_name.strip(), stops
        if last(here):
            return stops
        here.send_keys(Keys.TAB)
    pytest.fail(f"the keyboard does not reach the end: {stops}")


def test_the_keyboard_is_enough(visit: Callable[[str], Chrome]) -> None:
    chrome = visit(without_landscapes())
    chrome.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert chrome.switch_to.active_element.text == "Skip to the content"
    reached = walk(chrome, lambda here: here.get_attribute("id") == "provenance-link")
    for control in ("a Curvature", "button λmax ± data", "input FedAvg+MAN", "input Target accuracy (%)",
                    "summary Where the spectra come from"):  # fmt: skip
        assert control in reached

    # each control answers to its keys
    target = chrome.find_element(By.ID, "target")
    target.send_keys(Keys.CONTROL, "a")
    target.send_keys("45")
    items = [item.text for item in chrome.find_elements(By.CSS_SELECTOR, "#reached li")]
    assert items == ["FedAvg: not reached", "FedAvg+MAN: 5 rounds"]
    head = chrome.find_element(By.CSS_SELECTOR, "#curvature thead button")
    head.send_keys(Keys.SPACE)
    head.send_keys(Keys.SPACE)
    assert names_in_order(chrome, "#curvature table")[:2] == ["FedAvg+MAN", "FedAvg"]
    chrome.find_element(By.CSS_SELECTOR, "#curvature summary").send_keys(Keys.ENTER)
    assert curvature()["checkpoint"]["sha256"] in chrome.find_element(By.ID, "curvature").text


EVIL = "<img src=x onerror='window.hit=1'><script>window.hit=1</script></script><a href='http://a.example/'>b</a>"


def test_texts_do_nothing_and_the_policy_holds(visit: Callable[[str], Chrome]) -> None:
    chrome = visit(report_page([run("one", EVIL), run("two", "fedavg")], [curvature("one", EVIL)], []))
    assert EVIL in chrome.find_element(By.TAG_NAME, "h1").text
    legends = chrome.find_elements(By.CSS_SELECTOR, ".legendtext")
    assert f"{EVIL[:11]}…{EVIL[-11:]}" in [legend.text for legend in legends]
    assert not chrome.find_elements(By.CSS_SELECTOR, "svg a")
    assert chrome.execute_script("return window.hit") is None
    # whatever came in as a script, or asked for something, would be refused
    refused = chrome.execute_async_script("""
        const done = arguments[0], refused = [];
        document.addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.hit = 1";
        document.body.append(script);
        fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done([refused.sort(), window.hit]), 200));
    """)
    assert refused == [["connect-src", "script-src-elem"], None]
    assert {e["level"] for e in log(chrome, "browser")} >= {"SEVERE"}  # so it says


def test_it_fits_a_phone_and_paper(visit: Callable[[str], Chrome]) -> None:
    width = 375
    chrome = visit(without_landscapes())
    printed = base64.b64decode(chrome.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    keep_file("report.pdf", printed)
    assert printed.startswith(b"%PDF-")
    assert len(printed) > 20_000
    wait(chrome, "return [...document.querySelectorAll('details')].every(d => !d.open)")  # as before
    phone = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    wait(chrome, "return document.querySelector('[data-chart] svg').clientWidth <= arguments[0]", width)
    keep(chrome, "report-phone")
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_phone_a_surface_leaves_room_for_its_labels(
    chrome: Chrome, visit: Callable[[str], Chrome]
) -> None:
    phone = {"width": 375, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    visit(with_landscapes([landscape("one", "fedavg", points=7)]))
    reach, of_a_desk, title = wait(
        chrome,
        """
        const scene = document.querySelector('.space')?._fullLayout?.scene;
        const reach = (x, y, z) => Math.hypot(x, y, z);
        return scene?.camera.eye && [
          reach(scene.camera.eye.x, scene.camera.eye.y, scene.camera.eye.z),
          reach(...Object.values(page.planes)[0].eye),
          scene.zaxis.title.text,
        ];
        """,
    )
    assert reach == pytest.approx(1.45 * of_a_desk)
    assert title == ""
    keep(chrome, "report-phone-surface")
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
