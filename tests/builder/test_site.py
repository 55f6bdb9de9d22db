"""The site in a browser: from the disk, narrow and wide, searched, without a request to anybody."""

import json
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.report.browser import keep, log, wait

pytestmark = pytest.mark.slow
PAGES = (
    "index.html", "tutorial/measure.html", "how_to/python.html", "coming_from/pyhessian.html",
    "explanation/eigenvalues.html", "explanation/reading_a_landscape.html", "curvature.html", "glossary.html",
    "reference/commands/train.html", "reference/json/hessian.html", "reference/python/operators.html",
    "methods/index.html", "papers/man.html", "gallery/man/table1-cpu.html", "benchmarks.html", "faq.html",
)  # fmt: skip
# parts of a page that lie beyond its right edge, in no box that scrolls
OUTSIDE = """
const scrolls = (part) => part && part !== document.body && (
  ["auto", "scroll", "hidden"].includes(getComputedStyle(part).overflowX) || scrolls(part.parentElement));
return [...document.querySelectorAll(".md-content *, .md-header *")].filter((part) => {
  const box = part.getBoundingClientRect();
  return box.width > 0 && box.right > innerWidth + 1 && !scrolls(part);
}).map((part) => `${part.tagName}: ${part.textContent.slice(0, 40)}`);
"""


def resize(chrome: Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def requests(chrome: Chrome) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in log(chrome, "performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


@pytest.mark.parametrize("width", [400, 1400])
def test_pages_fit_and_ask_nobody(chrome: Chrome, site: Path, width: int) -> None:
    resize(chrome, width)
    for page in PAGES:
        chrome.get((site / page).as_uri())
        wait(chrome, "return document.documentElement.classList.contains('js')")
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= width, page
        assert chrome.execute_script(OUTSIDE) == [], page
        assert chrome.execute_script("return [...document.images].every(one => one.naturalWidth > 0)"), page
        keep(chrome, f"site-{page.removesuffix('.html').replace('/', '-')}-{width}")
    own = ("file:", "data:", "blob:", "about:")
    assert [url for url in requests(chrome) if not url.startswith(own)] == []
    assert [entry["message"] for entry in log(chrome, "browser") if entry["level"] == "SEVERE"] == []


def test_it_is_searched_from_the_disk(chrome: Chrome, site: Path) -> None:
    resize(chrome, 1400)
    chrome.get((site / "index.html").as_uri())
    query = chrome.find_element(By.CSS_SELECTOR, "[data-md-component='search-query']")
    query.click()
    query.send_keys("trace-rtol")
    wait(chrome, "return document.querySelectorAll('.md-search-result__item').length > 0")
    links = chrome.find_elements(By.CSS_SELECTOR, ".md-search-result__item a")
    aims = [str(link.get_attribute("href")) for link in links]
    assert any("reference/commands/hessian.html" in aim for aim in aims), aims


def test_formulas_are_set(chrome: Chrome, site: Path) -> None:
    resize(chrome, 1400)
    chrome.get((site / "explanation/clients.html").as_uri())
    formulas = "[...document.querySelectorAll('.formula math')]"
    heights = f"{formulas}.map(one => one.getBoundingClientRect().height)"
    # once the styles are there a fraction stands on two lines
    wait(chrome, f"const all = {heights}; return all.length >= 3 && Math.min(...all) > 20")
