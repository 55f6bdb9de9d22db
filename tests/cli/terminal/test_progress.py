"""A long step's line: on a terminal what it says in 80 columns, in a log when it says something."""

import io
import itertools
import sys

import pytest
from rich.console import Console

from fedscope.choices import AtMost
from fedscope.cli import main
from fedscope.cli.terminal import console
from fedscope.cli.terminal import pulse as pulses
from fedscope.cli.terminal.pulse import LongStep, Pulse
from tests.cli.conftest import Command


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def _screen(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> io.StringIO:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None, emoji=False)
    monkeypatch.setattr(console, "errors", lambda: terminal)
    return screen


def _step(title: str, *reports: tuple[float, int, int | None, str]) -> LongStep:
    """Return a step after reports, each so many seconds after the one before."""
    clock = Clock()
    step = LongStep(title, clock)
    for seconds, done, total, text in reports:
        clock.time += seconds
        step.report(done, total, text)
    return step


def test_an_unknown_end_has_neither_bar_nor_time_left() -> None:
    step = _step("tiny@2: trace, products", (6, 12, None, "4.8551 ± 0.37"), (6, 24, None, "4.8551 ± 0.37"))
    assert step.drawn(80) == "| tiny@2: trace, products 24 in 12 s\n  4.8551 ± 0.37"
    assert step.logged() == "tiny@2: trace, products: 24 in 12 s: 4.8551 ± 0.37"


def test_a_bound_of_the_end_has_the_most_time_that_is_left() -> None:
    step = _step("tiny: λ_max, products", (6, 1, AtMost(61), ""), (6, 4, AtMost(61), "λ ≈ 4.8"))
    assert (
        step.drawn(80) == "| tiny: λ_max, products 4 of at most 61 in 12 s, at most 2.85 min left\n  λ ≈ 4.8"
    )
    assert step.logged() == "tiny: λ_max, products: 4 of at most 61 in 12 s, at most 2.85 min left: λ ≈ 4.8"


def test_a_known_end_has_both() -> None:
    step = _step("tiny@2: surface, points", (6, 1, 12, ""), (12, 3, 12, ""))
    assert step.drawn(80) == "| tiny@2: surface, points ━━━······· 3/12 in 18 s, 54 s left"
    assert step.logged() == "tiny@2: surface, points: 3/12 in 18 s, 54 s left"


def test_what_an_earlier_command_did_is_no_part_of_the_rate() -> None:
    assert _step("surface", (1, 900, 1000, "")).left is None
    assert _step("surface", (1, 900, 1000, ""), (5, 950, 1000, "")).left == 5


@pytest.mark.parametrize("width", [60, 80, 200])
def test_numbers_are_whole_at_every_width(width: int) -> None:
    text = "λ ≈ 29.72, residuals up to 1.5e-02 (asked: 3.0e-02)"
    step = _step(
        "reference-fedavg+man@20:client3: λ_max of each block, products", (9, 1, 344, text), (9, 2, 344, text)
    )
    first, second = step.drawn(width).split("\n")
    assert first.endswith(" 2/344 in 18 s, 51.3 min left")
    assert second.strip() == text
    assert max(len(first), len(second)) <= width
    assert ("…" in first) == (width < 100)


def test_a_log_has_a_line_every_half_minute_within_a_step_and_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulses, "EVERY", 30.0)
    clock, said = Clock(), list[str]()
    pulse = Pulse(said.append, clock)
    assert pulse.beat() == 30
    clock.time += 20
    pulse.said()  # something was printed
    clock.time += 20
    assert (pulse.beat(), said) == (10, [])
    clock.time += 10
    assert pulse.beat() == 30
    step = LongStep("a@3: cross-client, products", clock)
    with pulse.during(step):
        clock.time += 30
        step.report(12, None)
        pulse.beat()
    clock.time += 40
    pulse.beat()
    assert said == [
        "at work for 50 s", "a@3: cross-client, products: 12 in 30 s", "at work for 2 min",
    ]  # fmt: skip


def test_commands_beat(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 100)
    monkeypatch.setattr(pulses, "EVERY", 30.0)
    monkeypatch.setattr(console.PULSE, "now", lambda: float(next(clock)))
    monkeypatch.setattr(console.PULSE, "last", 0.0)
    found = fedscope("runs", "list")
    assert (found.code, "at work for" in found.err) == (0, True)


def test_a_terminal_is_told_that_pytorch_is_loaded_and_a_log_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_terminal in (True, False):
        finder = main._Loading()
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=is_terminal: shown)
        finder.find_spec("numpy")
        assert not capsys.readouterr().err
        finder.find_spec("torch")
        finder.find_spec("torch")
        assert capsys.readouterr().err.count("loading PyTorch …") == is_terminal


def test_an_address_is_no_emoji(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = _screen(monkeypatch)
    with console.progress("d@2:anchor [x]") as report:
        report(1, 2, "at d@2:anchor")
    console.note("of d@2:anchor")
    console.print_table("d@2:anchor", ["a:anchor"], [["d@2:anchor"]], ["a d@2:anchor"])
    drawn = screen.getvalue() + capsys.readouterr().out
    assert "d@2:anchor [x]" in drawn
    assert "1/2" in drawn
    assert "⚓" not in drawn
