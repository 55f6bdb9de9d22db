"""The report at every width and in both colour schemes: nothing clipped, nothing hard to read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from tests.figures.clients.records import record
from tests.figures.records import crossed, curvature, landscape, profile, run
from tests.report.browser import keep, wait
from tests.report.pages import report_page

pytestmark = pytest.mark.slow

WIDTHS = (360, 400, 768, 1000, 1400, 1600)
SCHEMES = ("light", "dark")
METHODS = ("fedavg", "feddyn+man", "a_method_of_another_package_with_a_long_name+man", "fedsam+man", "moon")


def everything() -> str:
    """A report of five methods with every part but planes, whose drawing without a GPU is slow."""
    names = [f"a-run-with-a-long-name-{i}" for i in range(len(METHODS))]
    own = list(zip(names, METHODS, strict=True))
    curvatures = [
        curvature(name, method, top=20.0 * (i + 1), cross_client=crossed())
        for i, (name, method) in enumerate(own)
    ]
    lines = [profile(name, method) for name, method in own]
    runs = [run(name, method, rounds=30) for name, method in own]
    return report_page(runs, curvatures, lines, [record(6)])


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest, chrome: Chrome) -> Iterator[str]:
    """What the system prefers."""
    feature = {"name": "prefers-color-scheme", "value": request.param}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    yield request.param
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def resize(chrome: Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    fits = """
        return [...document.querySelectorAll('[data-chart], .flat, .space')].every((box) =>
          !box.clientWidth || Math.abs(box.querySelector('.main-svg').clientWidth - box.clientWidth) < 2);
    """
    wait(chrome, fits)


CHECKS = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")


def ask(chrome: Chrome, question: str) -> list[Any]:
    """Return what a function of layout.js says of the page."""
    found: list[Any] = chrome.execute_script(f"{CHECKS}; return {question}()")
    return found


def wait_for_lights(chrome: Chrome, *, on: bool) -> None:
    wait(chrome, f"{CHECKS}; return lights().every((light) => light === arguments[0])", on)


def test_nothing_is_clipped_at_any_width(chrome: Chrome, visit: Callable[[str], Chrome]) -> None:
    visit(everything())
    for width in WIDTHS:
        resize(chrome, width)
        for scheme in SCHEMES:
            Select(chrome.find_element(By.ID, "scheme")).select_by_visible_text(scheme)
            wait_for_lights(chrome, on=scheme == "light")
            keep(chrome, f"report-{width}-{scheme}")
            assert chrome.execute_script("return document.scrollingElement.scrollWidth") <= width
            for what in ("outside", "clipped", "colliding", "unstuck", "astray"):
                assert ask(chrome, what) == [], (width, scheme)
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_tables_have_room_on_a_desk(chrome: Chrome, visit: Callable[[str], Chrome]) -> None:
    visit(report_page([run()], [curvature(cross_client=crossed())], []))
    resize(chrome, 1400)
    cut = "return [...document.querySelectorAll('.wide')].map((box) => box.scrollWidth - box.clientWidth)"
    assert set(chrome.execute_script(cut)) == {0}
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_contrasts_are_those_of_wcag_aa(chrome: Chrome, visit: Callable[[str], Chrome], scheme: str) -> None:
    runs = [run(f"r{i}", f"m{i}") for i in range(10)]  # as many as there are colours
    visit(
        report_page(runs, [curvature("r0", "m0", cross_client=crossed())], [landscape("r0", "m0", points=3)])
    )
    found = ask(chrome, "contrasts")
    assert len(found) > 100
    assert {".swatch", ".scatterlayer .js-line", "select, button"} <= {what for *_, what in found}
    assert [row for row in found if row[0] < row[1]] == []


def test_the_switch_outdoes_the_system_within_the_page_only(
    chrome: Chrome, visit: Callable[[str], Chrome], scheme: str
) -> None:
    text = report_page([run()], [curvature()], [landscape(points=3)])
    visit(text)
    bright = scheme == "light"
    assert set(ask(chrome, "lights")) == {bright}
    Select(chrome.find_element(By.ID, "scheme")).select_by_visible_text("dark" if bright else "light")
    wait_for_lights(chrome, on=not bright)
    visit(text)
    assert set(ask(chrome, "lights")) == {bright}


def test_paper_is_light(chrome: Chrome, visit: Callable[[str], Chrome]) -> None:
    visit(report_page([run()], [curvature()], []))
    Select(chrome.find_element(By.ID, "scheme")).select_by_visible_text("dark")
    wait_for_lights(chrome, on=False)
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    chrome.execute_script("dispatchEvent(new Event('beforeprint'))")
    wait_for_lights(chrome, on=True)
    keep(chrome, "report-paper")
    assert ask(chrome, "astray") == []
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    chrome.execute_script("dispatchEvent(new Event('afterprint'))")
    wait_for_lights(chrome, on=False)
