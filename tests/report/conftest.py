"""A headless Chromium for the pages that the figures' tests make."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.report.browser import FLAGS, PATIENCE, log, wait


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for found in map(shutil.which, names) if found), None)
    driver = shutil.which("chromedriver")
    if not (browser and driver):
        reason = "no Chromium with chromedriver is here; apt-get install chromium chromium-driver"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    options = ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = Chrome(options=options, service=Service(driver))
    found.set_script_timeout(PATIENCE)
    found.set_page_load_timeout(PATIENCE)
    assert not isinstance(found.command_executor, str)
    found.command_executor.client_config.timeout = PATIENCE
    yield found
    found.quit()


@pytest.fixture
def visit(chrome: Chrome, tmp_path: Path) -> Iterator[Callable[[str], Chrome]]:
    """Open a page from a file; in the end it must have said no error and asked for nothing."""
    requests: list[str] = []

    def opened(text: str) -> Chrome:
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        chrome.get(path.as_uri())
        wait(chrome, "return document.documentElement.dataset.ready === 'yes'")
        return chrome

    yield opened
    for entry in log(chrome, "performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requests.append(message["params"]["request"]["url"])
    assert {url for url in requests if url.startswith("file:")} == {(tmp_path / "report.html").as_uri()}
    assert not [url for url in requests if not url.startswith(("file:", "data:", "blob:"))]
    assert [e["message"] for e in log(chrome, "browser") if e["level"] == "SEVERE"] == []
