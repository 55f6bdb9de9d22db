"""`fedscope train --log`: the user's own logger through a training, an interruption and a longer run."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command

OWN = """
from contextlib import contextmanager
from pathlib import Path

@contextmanager
def lines(run, settings):
    file = Path(f"{run.name}.log")
    file.touch()
    assert settings["clients"] == 3

    def log(round, metrics):
        with file.open("a") as handle:
            handle.write(f"{round}\\n")

    try:
        yield len(file.read_text().split()), log
    finally:
        Path("closed").touch()

@contextmanager
def failing(run, settings):
    def log(round, metrics):
        raise OSError("the server is gone")

    yield 0, log
"""
SMALL = ("--model", "mlp_digits", "--clients", "3", "--epochs", "1", "--registry", "r", "--name", "a")


@pytest.fixture(autouse=True)
def _mylogs(fedscope: Command, tmp_path: Path) -> None:
    (tmp_path / "mylogs.py").write_text(OWN, encoding="utf-8")


def rounds(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "a.log").read_text().split()]


def test_a_longer_run_goes_on_and_an_interrupted_one_lacks_nothing(
    fedscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_metrics: object) -> dict[str, float]:
        raise KeyboardInterrupt

    own = ("--log", "mylogs:lines")
    with monkeypatch.context() as patch:
        patch.setattr("fedscope.loggers.logger.numbers", interrupted)
        assert fedscope("train", *SMALL, "--rounds", "2", *own).code == 130
    assert (rounds(tmp_path), (tmp_path / "closed").exists()) == ([], True)
    resume = ("train", "--resume", "--name", "a", "--registry", "r")
    assert fedscope(*resume, *own).code == 0
    assert rounds(tmp_path) == [1, 2]
    assert fedscope(*resume, "--rounds", "3", *own, "--log", "tensorboard").code == 0
    assert rounds(tmp_path) == [1, 2, 3]
    assert (tmp_path / "r" / "a" / "tensorboard").is_dir()
    assert fedscope("runs", "verify", "--registry", "r").code == 0


def test_a_logger_that_fails_costs_a_note_and_no_round(fedscope: Command) -> None:
    done = fedscope("train", *SMALL, "--rounds", "3", "--log", "mylogs:failing")
    assert done.code == 0
    assert done.err.count("the server is gone") == 1
    assert "mylogs:failing: OSError: the server is gone (mylogs.py, line" in done.err
    assert "a: round 3/3" in done.err


def test_a_mistyped_logger_is_refused_before_the_data_is_read(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscope.workflows.train.one_run.prepare", pytest.fail)
    done = fedscope("train", *SMALL, "--log", "wanbd")
    assert (done.code, "did you mean 'wandb'" in done.err) == (2, True)
