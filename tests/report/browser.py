"""What the browser's tests share: flags, waiting, logs, and screenshots, which go to FEDSCOPE_SCREENSHOTS."""

import base64
import os
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.support.ui import WebDriverWait

SCREENSHOTS = os.environ.get("FEDSCOPE_SCREENSHOTS")
PATIENCE = 400  # seconds: surfaces in space are rendered without a GPU, perhaps on a busy machine
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=960,800",
    # the Linux packages ask for GPU rasterisation, which is slow without a GPU; WebGL is there in software
    "--disable-gpu-rasterization", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--no-first-run",
    "--hide-scrollbars",
)  # fmt: skip


def log(chrome: Chrome, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chrome.get_log(kind)  # type: ignore[no-untyped-call]
    return found


def wait(chrome: Chrome, condition: str, *arguments: Any) -> Any:
    return WebDriverWait(chrome, PATIENCE).until(lambda c: c.execute_script(condition, *arguments))


def keep(chrome: Chrome, name: str) -> None:
    """Keep a picture of the whole page, where one is wanted."""
    if SCREENSHOTS:
        size = chrome.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {**size, "x": 0, "y": 0, "scale": 1}
        shot = chrome.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        keep_file(f"{name}.png", base64.b64decode(shot["data"]))


def keep_file(name: str, content: bytes) -> None:
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        Path(SCREENSHOTS, name).write_bytes(content)
