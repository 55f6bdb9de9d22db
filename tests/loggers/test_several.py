"""Loggers beside each other: rounds once and in order, faults told once, training never ended."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.loggers.logger import logged
from fedscope.loggers.trackers import Log


class Recorder:
    """Keeps what it gets; raises in the steps that ``fails`` names."""

    def __init__(self, done: int = 0, fails: str = "", error: Exception | None = None):
        self.done, self.fails, self.error = done, fails, error or OSError("no space left")
        self.rounds: list[int] = []
        self.steps: list[str] = []

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.fails.split():
            raise self.error

    @contextmanager
    def __call__(self, run: RunFolder, settings: Mapping[str, object]) -> Iterator[tuple[int, Log]]:
        self._step("open")
        assert settings["dataset"] == "digits"
        try:
            yield self.done, self.log
        finally:
            self._step("close")

    def log(self, round: int, metrics: Mapping[str, float]) -> None:
        self._step("log")
        assert 0 < metrics["accuracy"] <= 1
        self.rounds.append(round)


def third(run: RunFolder) -> Round:
    return run.metrics()[-1].edited(round=3)


@pytest.mark.parametrize(("done", "expected"), [(0, [1, 2, 3]), (1, [2, 3]), (2, [3])])
def test_a_logger_gets_what_it_lacks_and_then_each_new_round(
    run: RunFolder, done: int, expected: list[int]
) -> None:
    one = Recorder(done)
    with logged(run, {"one": one}, pytest.fail) as log:
        log(third(run))
    assert one.rounds == expected
    assert (one.steps[0], one.steps[-1], one.steps.count("close")) == ("open", "close", 1)


@pytest.mark.parametrize("fails", ["log", "close", "log close"])
def test_one_that_fails_is_told_once_and_left_out(run: RunFolder, fails: str) -> None:
    bad, good, notes = Recorder(2, fails), Recorder(2), list[str]()
    with logged(run, {"bad": bad, "good": good}, notes.append) as log:
        for number in (3, 4):
            log(third(run).edited(round=number))
    assert good.rounds == [3, 4]
    assert len(notes) == 1
    assert notes[0].startswith("bad: OSError: no space left")
    assert notes[0].endswith("; the training goes on without it")
    assert bad.steps.count("log") == {"close": 2}.get(fails, 1)
    assert "close" in bad.steps


@pytest.mark.parametrize("error", [UserError("a link lies there"), OSError("no key")])
def test_one_that_cannot_be_opened_ends_it_before_the_training_and_closes_the_others(
    run: RunFolder, error: Exception
) -> None:
    first, second = Recorder(2), Recorder(2, "open", error)
    said = rf"^--log b: .*{error}.*; mend that, or leave --log b out$"
    with pytest.raises(UserError, match=said), logged(run, {"a": first, "b": second}, pytest.fail):
        pytest.fail("it was opened")
    assert first.steps == ["open", "close"]


def test_loggers_are_closed_when_the_training_ends_early(run: RunFolder) -> None:
    one = Recorder(2)
    with pytest.raises(KeyboardInterrupt), logged(run, {"one": one}, pytest.fail):
        raise KeyboardInterrupt
    assert one.steps == ["open", "close"]
