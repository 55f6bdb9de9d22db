"""The bar on a terminal: what it says, and that it never looks full where the end is not known."""

import io

import pytest
from rich.console import Console

from fedscope.cli.terminal import console


def _line(monkeypatch: pytest.MonkeyPatch, done: int, total: int | None, text: str) -> str:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, color_system=None, emoji=False)
    monkeypatch.setattr(console, "errors", lambda: terminal)
    with console.progress("tiny@2: trace, products") as report:
        report(done, total, text)
    drawn = [line for line in screen.getvalue().replace("\x1b[2K", "\r").split("\r") if "trace" in line]
    return drawn[-2 if "products:" in drawn[-1] else -1]


def test_an_unknown_total_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    line = _line(monkeypatch, 12, None, "4.8551 ± 0.37")
    assert "products 12 0:00:00 4.8551 ± 0.37" in line
    assert "━" not in line
    assert "/?" not in line


def test_a_known_total_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    line = _line(monkeypatch, 3, 12, "a word " * 20)
    assert "━" in line
    assert "3/12" in line
    assert "tiny@2: trace, products" in line
    assert "…" in line


def test_an_address_is_no_emoji(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    terminal = console.errors()
    terminal.file, terminal._force_terminal = screen, True
    monkeypatch.setattr(console, "errors", lambda: terminal)
    with console.progress("d@2:anchor [x]") as report:
        report(1, 2, "at d@2:anchor")
    console.note("of d@2:anchor")
    console.print_table("d@2:anchor", ["a:anchor"], [["d@2:anchor"]], ["a d@2:anchor"])
    drawn = screen.getvalue() + capsys.readouterr().out
    assert "d@2:anchor [x]" in drawn
    assert "⚓" not in drawn
