"""A long step's line: how far it is, its time and the time left; and a line every half a minute in a log."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil

from fedscope.choices import AtMost
from fedscope.workflows.progress import duration

EVERY = 30.0  # at most so long does a log say nothing [s]
BAR = 10  # columns
Clock = Callable[[], float]


@dataclass
class LongStep:
    """A long step of a command, as it was reported last."""

    title: str
    now: Clock = time.monotonic
    done: int = 0
    total: int | None = None  # None: unknown
    text: str = ""
    since: tuple[float, int] | None = None  # a time, and what was done by then: the rate is from there on
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.now()

    def report(self, done: int, total: int | None = None, text: str = "", /) -> None:
        """Take what is done; the first report may hold what an earlier command did."""
        self.since = self.since or ((self.begun, 0) if done == 1 else (self.now(), done))
        self.done, self.total, self.text = done, total, text

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.now() - self.begun

    @property
    def left(self) -> float | None:
        """Seconds that are left at the rate so far, or the most; None where end or rate are not known."""
        if not self.total or not self.since or self.done <= self.since[1]:
            return None
        start, before = self.since
        return (self.now() - start) / (self.done - before) * max(0, self.total - self.done)

    @property
    def amount(self) -> str:
        """``12/40``; where the end is not known ``12 of at most 330``, or ``12``."""
        between = " of at most " if isinstance(self.total, AtMost) else "/"
        return f"{self.done}{between}{self.total}" if self.total else str(self.done)

    @property
    def remaining(self) -> str:
        """``, 9 s left``; of a bound ``, at most 9 s left``; nothing where no end is known."""
        about = "at most " if isinstance(self.total, AtMost) else ""
        return "" if self.left is None else f", {about}{duration(self.left)} left"

    def logged(self) -> str:
        """Return the line of a log."""
        text = f": {self.text}" if self.text else ""
        return f"{self.title}: {self.amount} in {duration(self.elapsed)}{self.remaining}{text}"

    def drawn(self, width: int) -> str:
        """Return the lines of a terminal: the title gives way to numbers, and the text has its own line."""
        total = None if isinstance(self.total, AtMost) else self.total
        filled = ceil(BAR * min(1, self.done / total)) if total else 0
        bar = f" {'━' * filled}{'·' * (BAR - filled)}" if total else ""
        numbers = f"{bar} {self.amount} in {duration(self.elapsed)}{self.remaining}"
        spinner = "|/-"[int(4 * self.elapsed) % 3]
        lines = [f"{spinner} {cut(self.title, width - len(numbers) - 2)}{numbers}"]
        return "\n".join([*lines, *([f"  {cut(self.text, width - 2)}"] if self.text else [])])


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most so many columns."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


class Pulse:
    """Says every half a minute what is at work where nothing else was said."""

    def __init__(self, say: Callable[[str], None], now: Clock = time.monotonic):
        self.say, self.now = say, now
        self.begun = self.last = now()
        self.step: LongStep | None = None

    def said(self) -> None:
        """Wait from now on: something was printed."""
        self.last = self.now()

    def beat(self) -> float:
        """Say what is at work, if it is time; return the seconds until it is time again."""
        waits = self.last + EVERY - self.now()
        if waits > 0:
            return waits
        step = self.step
        self.say(step.logged() if step else f"at work for {duration(self.now() - self.begun)}")
        self.said()
        return EVERY

    @contextmanager
    def during(self, step: LongStep) -> Iterator[None]:
        """Let ``step`` be what is at work."""
        before, self.step = self.step, step
        try:
            yield
        finally:
            self.step = before

    @contextmanager
    def running(self) -> Iterator[None]:
        """Beat in a thread of its own as long as a command runs."""
        ended = threading.Event()
        self.begun = self.last = self.now()

        def work() -> None:
            while not ended.wait(self.beat()):
                pass

        thread = threading.Thread(target=work, name="pulse", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
